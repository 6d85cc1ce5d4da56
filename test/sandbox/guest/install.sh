#!/bin/sh
# The install script of the test world: behaves like the one that K3s serves for
# the variables that bootstrap data uses, and puts the K3s emulator in K3s' place.
# When the machine was given a real K3s binary, servers run that one instead.
set -e

sandbox=/var/lib/sandbox
bin_dir=${INSTALL_K3S_BIN_DIR:-/usr/local/bin}
unit_dir=${INSTALL_K3S_SYSTEMD_DIR:-/etc/systemd/system}

info() { echo "[INFO] " "$@"; }
fatal() {
	echo "[ERROR] " "$@" >&2
	exit 1
}

# Wraps each argument in single quotes, one per line, as the unit file wants them.
quote() {
	for arg in "$@"; do
		printf '%s\n' "$arg" | sed "s/'/'\\\\''/g;1s/^/'/;\$s/\$/'/"
	done
}

# Sets $command (server, agent, ...) and leaves its arguments in $arguments.
choose_command() {
	case "$1" in
	-* | "")
		if [ -z "$K3S_URL" ]; then
			command=server
		else
			[ -n "$K3S_TOKEN$K3S_TOKEN_FILE" ] ||
				fatal "Defaulted k3s exec command to 'agent' because K3S_URL is defined, but K3S_TOKEN or K3S_TOKEN_FILE is not defined."
			command=agent
		fi
		;;
	*)
		command=$1
		shift
		;;
	esac
	case "$K3S_URL" in
	"" | https://*) ;;
	*) fatal "Only https:// URLs are supported for K3S_URL (have $K3S_URL)" ;;
	esac
	arguments=$(quote "$@" | tr '\n' ' ')
}

# A release exists if one of the patterns in the machine's list matches it.
release_exists() {
	while read -r pattern; do
		# shellcheck disable=SC2254 # a pattern is what it should be
		case "$1" in
		$pattern) return 0 ;;
		esac
	done <"$sandbox/versions"
	return 1
}

download() {
	[ -n "$INSTALL_K3S_VERSION" ] || {
		info "Finding release for channel ${INSTALL_K3S_CHANNEL:-stable}"
		curl -w '%{url_effective}' -L -s -S "https://update.k3s.io/v1-release/channels/${INSTALL_K3S_CHANNEL:-stable}" -f -o /dev/null ||
			fatal "Download failed"
	}
	info "Using $INSTALL_K3S_VERSION as release"
	info "Downloading hash for $INSTALL_K3S_VERSION"
	if ! release_exists "$INSTALL_K3S_VERSION"; then
		echo "curl: (22) The requested URL returned error: 404" >&2
		fatal "Download failed"
	fi
	info "Downloading binary for $INSTALL_K3S_VERSION"
	info "Verifying binary download"
	info "Installing k3s to $bin_dir/k3s"
	ln -sf "$sandbox/bin/k3s-emulator" "$bin_dir/k3s"
	echo "$INSTALL_K3S_VERSION" >"$bin_dir/k3s.version"
}

link_tools() {
	[ "$INSTALL_K3S_SYMLINK" = skip ] && return
	[ -L "$bin_dir/kubectl" ] || ln -s "$sandbox/bin/kubectl" "$bin_dir/kubectl"
}

# What of the caller's environment K3s is to see, and nobody else may read.
write_env_file() {
	info "env: Creating environment file $1"
	(
		umask 0077
		: >"$1"
		sh -c 'export -p' | sed -n 's/^export //p' |
			grep -E '^(K3S|CONTAINERD)_|^(NO|HTTP|HTTPS|ALL)_PROXY=|^(no|http|https|all)_proxy=' >>"$1" || true
	)
}

# write_unit NAME EXEC-START DESCRIPTION WANTED-UNIT
write_unit() {
	info "systemd: Creating service file $unit_dir/$1.service"
	cat >"$unit_dir/$1.service" <<EOF
[Unit]
Description=$3
After=network-online.target
Wants=$4

[Install]
WantedBy=multi-user.target

[Service]
Type=${INSTALL_K3S_TYPE:-notify}
Environment=K3S_KUBE_APISERVER=$sandbox/bin/kube-apiserver
Environment=K3S_VERSION=$version
EnvironmentFile=-/etc/default/%N
EnvironmentFile=-/etc/sysconfig/%N
EnvironmentFile=-$unit_dir/$name.service.env
KillMode=process
Delegate=yes
LimitNOFILE=1048576
TimeoutStartSec=0
Restart=always
RestartSec=5s
ExecStart=$2
EOF
}

write_units() {
	if [ "$command" = server ] && [ -s "$sandbox/k3s" ]; then
		write_unit "$name" "$sandbox/k3s server --disable-agent $arguments" "Lightweight Kubernetes, without its agent" "$name-node.service"
		write_unit "$name-node" "$bin_dir/k3s node" "Lightweight Kubernetes (emulated node)"
		return
	fi
	write_unit "$name" "$bin_dir/k3s $command $arguments" "Lightweight Kubernetes (emulated)"
}

units() {
	echo "$name"
	[ -e "$unit_dir/$name-node.service" ] && echo "$name-node"
	return 0
}

# A number that changes with the binary, a unit or its environment.
installed_state() {
	cat "$bin_dir/k3s.version" "$unit_dir/$name.service" "$unit_dir/$name.service.env" 2>/dev/null | cksum
}

# shellcheck disable=SC2086 # words are what INSTALL_K3S_EXEC holds
eval set -- $INSTALL_K3S_EXEC '"$@"'
choose_command "$@"
if [ -n "$INSTALL_K3S_NAME" ]; then
	name=k3s-$INSTALL_K3S_NAME
elif [ "$command" = server ]; then
	name=k3s
else
	name=k3s-$command
fi

before=$(installed_state)
case "$INSTALL_K3S_SKIP_DOWNLOAD" in
true | binary)
	info "Skipping k3s download and verify"
	[ -x "$bin_dir/k3s" ] || fatal "Executable k3s binary not found at $bin_dir/k3s"
	;;
*) download ;;
esac
version=$(cat "$bin_dir/k3s.version" 2>/dev/null || echo "$INSTALL_K3S_VERSION")
link_tools
mkdir -p "$unit_dir"
write_env_file "$unit_dir/$name.service.env"
write_units

[ "$INSTALL_K3S_SKIP_ENABLE" = true ] && exit 0
for unit in $(units); do
	info "systemd: Enabling $unit unit"
	systemctl enable "$unit_dir/$unit.service" >/dev/null
done
systemctl daemon-reload >/dev/null

[ "$INSTALL_K3S_SKIP_START" = true ] && exit 0
if [ "$INSTALL_K3S_FORCE_RESTART" != true ] && [ "$before" = "$(installed_state)" ]; then
	info "No change detected so skipping service start"
	exit 0
fi
for unit in $(units); do
	info "systemd: Starting $unit"
	systemctl restart "$unit"
done
