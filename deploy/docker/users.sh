#!/bin/sh
# The users of the cluster, with the same numbers in every image: files and sockets are shared by number.
#   alice, bob   users of the cluster; their jobs become elastic
#   ops          an administrator of EJB, not root
#   ejb          the daemon's own: no shell, no home, no job
set -eu
! getent passwd ubuntu >/dev/null || userdel --remove ubuntu 2>/dev/null  # Ubuntu's own image has 1000 already
for person in alice:1000 bob:1001 ops:1002; do
    useradd --uid "${person#*:}" --create-home --shell /bin/bash "${person%:*}"
done
useradd --system --uid 64031 --home-dir /nonexistent --shell /usr/sbin/nologin ejb
getent passwd slurm >/dev/null || useradd --system --uid 64030 --home-dir /nonexistent --shell /usr/sbin/nologin slurm
# Folders that become volumes: a fresh volume takes owner and mode over.
install -d -o ejb -g ejb -m 711 /run/ejb
install -d -o ejb -g ejb -m 700 /var/lib/ejb
install -d -o root -g root -m 755 /run/ejb-as /spool
install -d -o ops -g ops -m 755 /run/token
for person in alice bob; do
    install -d -o "$person" -g "$person" -m 700 "/spool/$person"
done
install -d -o slurm -g slurm -m 755 /run/slurm /var/spool/slurmctld
