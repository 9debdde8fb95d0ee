#!/bin/sh
# One daemon a container, in the foreground. What each may do is in docker-compose.yml: only slurmd is root.
set -eu

case $1 in
munged)
    # One munged for the whole cluster: its socket is a volume, the kernel names the user that asks, its key stays here.
    if [ ! -s /etc/munge/munge.key ]; then
        (umask 077 && head -c 1024 /dev/urandom >/etc/munge/munge.key)
    fi
    rm -f /run/munge/munge.socket.2*
    exec munged --foreground --log-file=/tmp/munged.log --pid-file=/tmp/munged.pid --seed-file=/tmp/munged.seed
    ;;
slurmdbd)
    (umask 077 && { cat /etc/slurm/slurmdbd.conf.in && echo "StoragePass=$EJB_DB_PASSWORD"; } >/etc/slurm/slurmdbd.conf)
    exec slurmdbd -D
    ;;
slurmctld)
    exec slurmctld -D
    ;;
slurmd)
    exec slurmd -D -N "$(hostname)"
    ;;
*)
    exec "$@"
    ;;
esac
