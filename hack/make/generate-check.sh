#!/usr/bin/env bash
# Generates in a copy of the working tree and compares, so that the tree itself
# stays as it is, with whatever is uncommitted in it.
set -euo pipefail

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

git ls-files -z --cached --others --exclude-standard |
	while IFS= read -r -d '' file; do [ ! -e "$file" ] || printf '%s\0' "$file"; done |
	tar --create --null --files-from=- | tar --extract --directory "$copy"

# Gone from the copy first, so that a file that nothing generates any more shows.
(cd "$copy" && rm -f config/crd/bases/*.yaml config/rbac/*/role.yaml test/sandbox/config/crd/bases/*.yaml)
make -C "$copy" --no-print-directory generate >/dev/null

drift=0
for path in bootstrap controlplane config test/sandbox; do
	git --no-pager diff --no-index --stat --patch -- "$path" "$copy/$path" || drift=1
done
[ "$drift" = 0 ] || { echo 'generated files differ: run "make generate" and commit the result' >&2; exit 1; }
