# In a copy of the machine (a root of its own), as root: a Slurm, two users, and the commands of docs/operators.md.
# $1: the checkout; $2: the Python of the checkout; $3: a folder with `commands`, `ejbd.toml` and `systemctl`.
set -eu
checkout=$1 python=$2 given=$3
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8
umask 022

trap '"$python" "$checkout/scripts/cluster" down /tmp/site >/dev/null 2>&1 || true
    for pid in $(cat /tmp/systemctl.pids 2>/dev/null); do kill "$pid" 2>/dev/null || true; done' EXIT

# A test beside this one may be making users of the machine just now: what it locks is not locked here.
rm -f /etc/passwd.lock /etc/group.lock /etc/shadow.lock /etc/gshadow.lock

# What a site has: Slurm, whose configuration is where it belongs, and users with homes and places for their spools.
mkdir -p /tmp/site /scratch /etc/slurm /etc/systemd/system
"$python" "$checkout/scripts/cluster" up /tmp/site --nodes 2 --cpus 4 --profile multiuser >/dev/null
ln -sf /tmp/site/slurm.conf /etc/slurm/slurm.conf
for user in alice bob; do
    useradd --create-home --home-dir "/scratch/$user" --shell /bin/bash "$user"
    printf '#!/bin/sh\nid -un >>ran\n' >/tmp/program
    install -m 0755 -o "$user" /tmp/program "/scratch/$user/a"
    install -m 0755 -o "$user" /tmp/program "/scratch/$user/b"
done
install -m 0644 "$given/ejbd.toml" /root/ejbd.toml
install -m 0755 "$given/systemctl" /usr/local/bin/systemctl
cd /root
. "$given/commands"

for user in alice bob; do
    echo "== $user"
    su - "$user" -c 'EJB_SOCKET=/run/ejb/ejbd.sock ejb wait last >/dev/null 2>&1 || true
        EJB_SOCKET=/run/ejb/ejbd.sock ejb status --json last'
    sort "/scratch/$user/ran" | uniq -c
    find "/scratch/$user/.ejb" ! -user "$user" -print
done
EJB_SOCKET=/run/ejb/ejbd.sock ejb doctor >/tmp/doctor 2>&1 || true
grep -e ejb-as -e " port: " /tmp/doctor || cat /tmp/doctor
for pid in $(cat /tmp/systemctl.pids); do ps -o user= -o args= -p "$pid"; done
