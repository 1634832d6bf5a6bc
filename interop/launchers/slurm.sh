#!/usr/bin/env bash
# Runs a command under a Slurm of two nodes, both on this host, and takes the Slurm down again:
#
#   interop/launchers/slurm.sh srun -N 2 -n 4 PROGRAM
#
# Needs root, and slurmctld, slurmd, srun and munged (Debian: slurm-wlm, munge). Configuration, keys,
# logs and sockets lie in a directory of their own, so a Slurm that is there already is not touched.
# Ends with the command's exit code, or with 77 and the reason if it cannot run here.
set -euo pipefail

skip() {
    echo "skipped: $*" >&2
    exit 77
}
PATH="$PATH:/usr/sbin:/sbin"
for tool in slurmctld slurmd srun sinfo munged; do
    command -v "$tool" >/dev/null || skip "$tool is not installed"
done
[[ $(id -u) == 0 ]] || skip "the daemons need root"
[[ $# -gt 0 ]] || { echo "usage: $0 COMMAND [ARGUMENT...]" >&2; exit 2; }

dir=$(mktemp -d)
# One after the other and each with a word of why: a daemon that did not start has no file.
cleanup() {
    for daemon in n2 n1 slurmctld munged; do
        if [[ -s $dir/$daemon.pid ]]; then
            kill "$(<"$dir/$daemon.pid")" 2>/dev/null || true
        fi
    done
    # Daemons write to their directory until they end.
    for _ in $(seq 50); do
        rm -rf "$dir" 2>/dev/null && break
        sleep 0.1
    done
}
trap cleanup EXIT

mkdir "$dir"/{spool,state}
head -c 1024 /dev/urandom >"$dir/munge.key"
chmod 400 "$dir/munge.key"
munged --force --key-file="$dir/munge.key" --socket="$dir/munge.socket" \
    --pid-file="$dir/munged.pid" --log-file="$dir/munged.log" --seed-file="$dir/munge.seed" \
    || skip "munged did not start"

# Below the ports that the system gives to clients; another run at the same time has others.
base=$((12000 + $$ % 2000 * 4))
cat >"$dir/slurm.conf" <<END
ClusterName=interop
SlurmctldHost=$(hostname)
SlurmctldPort=$base
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/%n.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SwitchType=switch/none
MpiDefault=none
SlurmdParameters=config_overrides
NodeName=n[1-2] NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=[$((base + 1))-$((base + 2))] CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
END
export SLURM_CONF=$dir/slurm.conf
{
    slurmctld
    slurmd -N n1
    slurmd -N n2
} >"$dir/start.log" 2>&1 || skip "Slurm did not start: $(<"$dir/start.log")"
nodes_are_idle() { [[ $(timeout 10 sinfo -h -N -o %T 2>/dev/null | grep -c "^idle") == 2 ]]; }
until nodes_are_idle; do
    ((SECONDS < 60)) || skip "the nodes of this Slurm do not come up: $(tail -n 3 "$dir"/*.log)"
    sleep 0.1
done

status=0
"$@" || status=$?
exit "$status"
