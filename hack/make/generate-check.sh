#!/usr/bin/env bash
# Generates in a copy of the working tree and compares, so that the tree itself
# stays as it is, with whatever is uncommitted in it.
set -euo pipefail

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

git ls-files -z --cached --others --exclude-standard |
	while IFS= read -r -d '' file; do [ ! -e "$file" ] || printf '%s\0' "$file"; done |
	tar --create --null --files-from=- | tar --extract --directory "$copy"

generated() {
	(cd "$1" && find bootstrap controlplane config docs test/sandbox \
		-name 'zz_generated.*.go' -o -path '*/docs/api/*.md' -o -path '*/crd/bases/*.yaml' -o -path '*/rbac/*/role.yaml')
}

# Gone from the copy first, so that a file that nothing generates any more shows.
generated "$copy" | grep '[.]yaml$' | (cd "$copy" && xargs rm -f)
make -C "$copy" --no-print-directory generate >/dev/null

drift=0
for file in $( (generated . && generated "$copy") | sort -u); do
	theirs=$copy/$file
	git --no-pager diff --no-index -- "$([ -e "$file" ] && echo "$file" || echo /dev/null)" \
		"$([ -e "$theirs" ] && echo "$theirs" || echo /dev/null)" || drift=1
done
[ "$drift" = 0 ] || { echo 'generated files differ: run "make generate" and commit the result' >&2; exit 1; }
