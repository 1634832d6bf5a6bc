#!/usr/bin/env bash
# Tests the RDMA backend on a soft card in a virtual machine: `cargo xtask rdma`.
#
# Runs the conformance suites of networks and transports, kills processes, and lets two processes
# reduce over the card. Takes about a minute once the virtual machine's kernel is there. Exit code
# 77: it cannot be run here, and the reason was printed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

skip() {
    echo "skipped: $*"
    exit 77
}
[[ $(uname -s -m) == "Linux x86_64" ]] || skip "the virtual machine is made for Linux on x86-64"
[[ $(id -u) == 0 ]] || skip "sharing the file system with the virtual machine needs root"
lacking=()
for tool in apt-get:apt qemu-system-x86_64:qemu-system-x86 cpio:cpio modprobe:kmod rdma:iproute2; do
    command -v "${tool%%:*}" >/dev/null || lacking+=("${tool##*:}")
done
ldconfig -p | grep -q libibverbs.so.1 || lacking+=(libibverbs1 ibverbs-providers)
((${#lacking[@]} == 0)) || skip "install ${lacking[*]}"

tests=$(cargo test -p comm-transport-net --features verbs --test verbs --no-run 2>&1 |
    tee /dev/stderr | sed -n 's/.*Executable tests.verbs.*(\(.*\))/\1/p')
cargo build -p comm-cli
cargo build -p comm-api --features verbs --example all_reduce --example ping_pong
target=$(realpath "${CARGO_TARGET_DIR:-target}")
work=$target/soft-roce
mkdir -p "$work"
cat >"$work/job.sh" <<JOB
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TMPDIR=/run COMM_TEST_RDMA_REQUIRED=1
ip link set dummy0 up
ip addr add 10.77.0.1/24 dev dummy0
rdma link add rxe0 type rxe netdev dummy0
{
    "$(realpath "$tests")" --test-threads 4 &&
        COMM_TRANSPORTS=verbs "$target/debug/commctl" launch -n 2 -- \
            "$target/debug/examples/all_reduce" &&
        COMM_TRANSPORTS=verbs COMM_DEBUG=INFO "$target/debug/commctl" launch -n 2 -- \
            "$target/debug/examples/ping_pong"
} >/mnt/log 2>&1
JOB
rm -f "$work/out/log"
status=0
bash interop/soft-roce/vm.sh "$work" "$work/job.sh" || status=$?
cat "$work/out/log" || true
exit "$status"
