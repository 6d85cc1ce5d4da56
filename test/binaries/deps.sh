#!/bin/sh
# Checks for the system programs that the tests need. When run as root on
# a machine with apt, installs what is missing; otherwise says what to do.
set -eu

# program:Debian package that brings it
needed="ip:iproute2 bwrap:bubblewrap unshare:util-linux nsenter:util-linux cloud-init:cloud-init jq:jq openssl:openssl curl:curl wget:wget"

missing=""
for entry in $needed; do
	command -v "${entry%%:*}" >/dev/null 2>&1 || missing="$missing ${entry##*:}"
done
ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || missing="$missing postgresql"
[ -e /etc/ssl/certs/ca-certificates.crt ] || missing="$missing ca-certificates"

[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
	echo "installing:$missing"
	export DEBIAN_FRONTEND=noninteractive
	# shellcheck disable=SC2086 # a list of package names
	{ apt-get update -q && apt-get install -y -q --no-install-recommends $missing; } >/dev/null ||
		{ echo "apt-get could not install:$missing" >&2; exit 1; }
	exit 0
fi

cat >&2 <<EOF
The test world needs programs that are missing here. Install these packages
(names as in Debian and Ubuntu), then run this again:

    sudo apt-get install --no-install-recommends$missing

EOF
exit 1
