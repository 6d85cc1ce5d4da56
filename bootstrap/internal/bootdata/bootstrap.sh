#!/bin/sh
# Makes a K3s node of this machine: bootstrap.sh server|agent VERSION DATA-DIR
# The user's commands run in this shell, so that what they export and where they
# go lasts; that is why all names here start with boot_.
boot_role=$1
boot_version=$2
boot_data=$3
boot_dir=${0%/*}
boot_sentinel=/run/cluster-api/bootstrap-success.complete
boot_service=k3s
[ "$boot_role" = server ] || boot_service=k3s-agent
boot_state=running
boot_tries=10
boot_limit=
boot_script_url=https://get.k3s.io
boot_script=
boot_script_sum=
boot_ca_file=
set --
# shellcheck disable=SC1091 # where K3s comes from and the proxies, as the spec has them
[ ! -e "$boot_dir/environment" ] || . "$boot_dir/environment"
[ "${INSTALL_K3S_SKIP_DOWNLOAD:-}" != true ] || boot_tries=1
# A download that stands still would last for ever.
! command -v timeout >/dev/null || boot_limit="timeout 900"

boot_say() {
	echo "k3s-bootstrap: $*"
}

boot_fail() {
	boot_state=failed
	boot_say "FAILED: $*" >&2
	exit 1
}

# Whatever ends the script early, a user's exit included, is a failure.
boot_end() {
	boot_status=$?
	case $boot_state in
	running) boot_say "FAILED: ended early, with status $boot_status" >&2 ;;
	failed) ;;
	*) return ;;
	esac
	[ "$boot_status" -ne 0 ] || exit 1
}
trap boot_end EXIT

# boot_own PATH OWNER MODE: either of the last two may be empty.
boot_own() {
	[ -z "$2" ] || chown -- "$2" "$1" || boot_fail "the file $1 can't be given to $2"
	[ -z "$3" ] || chmod -- "$3" "$1" || boot_fail "the file $1 can't have the mode $3"
}

# boot_append PATH CONTENT: what is there already keeps its owner and mode.
boot_append() {
	mkdir -p "${1%/*}" && cat "$2" >>"$1" || boot_fail "nothing can be added to the file $1"
}

# cloud-init writes the mark in the place of instance data that the machine doesn't have; a filter may change its case.
boot_check_rendered() {
	for boot_file in /etc/rancher/k3s/config.yaml "$boot_dir"/*K3sCommands/*; do
		! grep -qis CI_MISSING_JINJA_VAR/ "$boot_file" ||
			boot_fail "$boot_file has an expression over instance data that this machine doesn't have: $(
				grep -aio 'CI_MISSING_JINJA_VAR/[A-Za-z0-9_]*' "$boot_file" | head -n 1
			)"
	done
}

boot_commands() {
	for boot_file in "$boot_dir/$1"/*; do
		[ -e "$boot_file" ] || continue
		boot_command=$1/${boot_file##*/}
		boot_say "running $boot_command"
		# shellcheck disable=SC1090 # the files are the user's commands
		. "$boot_file" || boot_fail "$boot_command ended with status $?"
	done
}

boot_download() {
	if command -v curl >/dev/null; then
		curl -sSfL --connect-timeout 15 --max-time 120 "$boot_script_url"
	else
		wget -q -T 60 -O - "$boot_script_url"
	fi
}

# The script is run only once it is complete: an empty one would do nothing, with success.
boot_fetch() {
	[ -z "$boot_script" ] || return 0
	boot_download >"$boot_dir/install.sh" && [ -s "$boot_dir/install.sh" ] || {
		boot_say "the install script at $boot_script_url can't be downloaded" >&2
		return 1
	}
}

boot_check() {
	[ -s "$1" ] || {
		boot_say "there is no install script at $1" >&2
		return 1
	}
	[ -n "$boot_script_sum" ] || return 0
	boot_sum=$(sha256sum "$1")
	[ "${boot_sum%% *}" = "$boot_script_sum" ] || {
		boot_say "the install script $1 has the checksum ${boot_sum%% *}, not $boot_script_sum" >&2
		return 1
	}
}

boot_install() {
	boot_fetch && boot_check "${boot_script:-$boot_dir/install.sh}" &&
		# shellcheck disable=SC2086 # the limit is a command with an argument, or nothing
		INSTALL_K3S_VERSION=$boot_version INSTALL_K3S_SKIP_START=true $boot_limit sh "${boot_script:-$boot_dir/install.sh}" "$boot_role"
}

# Nothing was downloaded, so the K3s that is here may be another one.
boot_check_version() {
	[ "${INSTALL_K3S_SKIP_DOWNLOAD:-}" = true ] || return 0
	boot_found=$(boot_k3s --version) || boot_fail "the k3s on this machine can't be run"
	case "$boot_found " in
	*"k3s version $boot_version "*) ;;
	*) boot_fail "the k3s on this machine isn't $boot_version: it says $boot_found" ;;
	esac
}

boot_k3s() {
	"${INSTALL_K3S_BIN_DIR:+$INSTALL_K3S_BIN_DIR/}k3s" "$@"
}

boot_has_systemd() {
	command -v systemctl >/dev/null
}

# Doesn't wait, since systemd would give up on the first attempt that fails while K3s tries again.
boot_start() {
	if boot_has_systemd; then
		systemctl start --no-block "$boot_service"
	else
		rc-service "$boot_service" start
	fi
}

# systemd calls the unit active once K3s says that it is ready; OpenRC only knows that the process was started.
boot_is_up() {
	if boot_has_systemd; then
		systemctl is-active --quiet "$boot_service"
		return
	fi
	boot_kubeconfig=$boot_data/agent/kubelet.kubeconfig
	[ "$boot_role" = agent ] || boot_kubeconfig=$boot_data/server/cred/admin.kubeconfig
	boot_k3s kubectl --kubeconfig "$boot_kubeconfig" get --raw /readyz >/dev/null 2>&1
}

boot_show_log() {
	if boot_has_systemd; then
		journalctl --no-pager -n 30 -u "$boot_service"
	else
		tail -n 30 "/var/log/$boot_service.log"
	fi
}

# wget has no variable for it.
if [ -n "$boot_ca_file" ]; then
	export WGETRC="$boot_dir/wgetrc"
	echo "ca_certificate=$boot_ca_file" >"$WGETRC"
fi

boot_check_rendered
# shellcheck disable=SC1091 # calls of the two functions
[ ! -e "$boot_dir/files" ] || . "$boot_dir/files"
boot_commands preK3sCommands

if [ -e /etc/sysctl.d/90-k3s-cis.conf ]; then
	sysctl -p /etc/sysctl.d/90-k3s-cis.conf || boot_fail "the kernel doesn't take /etc/sysctl.d/90-k3s-cis.conf"
	[ "$boot_role" = agent ] || mkdir -p -m 700 "$boot_data/server/logs"
fi

boot_try=1
until boot_install; do
	[ "$boot_try" -lt "$boot_tries" ] || boot_fail "K3s $boot_version couldn't be installed in $boot_try attempts"
	boot_say "attempt $boot_try of $boot_tries to install K3s $boot_version failed; the next one is in 15 s" >&2
	boot_try=$((boot_try + 1))
	sleep 15
done
boot_check_version

boot_start || boot_fail "$boot_service couldn't be started"
boot_try=0
until boot_is_up; do
	[ "$boot_try" -lt 300 ] || {
		boot_show_log >&2
		boot_fail "$boot_service didn't come up within 15 minutes; it goes on trying"
	}
	[ $((boot_try % 20)) -ne 0 ] || boot_say "waiting for $boot_service to come up"
	boot_try=$((boot_try + 1))
	sleep 3
done
boot_say "$boot_service is up"

# From now on the server that founded the cluster is one that joins it: with an empty disk it would found another.
if [ -e "$boot_dir/90-join.yaml" ]; then
	mkdir -p /etc/rancher/k3s/config.yaml.d && cp "$boot_dir/90-join.yaml" /etc/rancher/k3s/config.yaml.d/ ||
		boot_fail "/etc/rancher/k3s/config.yaml.d/90-join.yaml couldn't be written"
fi

boot_commands postK3sCommands

mkdir -p "${boot_sentinel%/*}" && echo success >"$boot_sentinel" || boot_fail "$boot_sentinel couldn't be written"
boot_state=done
boot_say "this machine is a K3s $boot_role"
