#!/bin/sh
# The people of the cluster, with the same numbers in every image: files and sockets are shared by number.
#   alice     the user of the daemon: these jobs become elastic
#   bob       other people
#   ops       an administrator of EJB, not root
set -eu
for person in alice:1000 bob:1001 ops:1002; do
    useradd --uid "${person#*:}" --create-home --shell /bin/bash "${person%:*}"
done
getent passwd slurm >/dev/null || useradd --system --uid 64030 --home-dir /nonexistent --shell /usr/sbin/nologin slurm
# Folders that become volumes: a fresh volume takes owner and mode over.
install -d -o alice -g alice -m 755 /run/ejb /spool
install -d -o slurm -g slurm -m 755 /run/slurm /var/spool/slurmctld
