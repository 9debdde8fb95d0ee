#!/bin/sh
# MariaDB with one database, for slurmdbd: made at the first start, and its password set at each.
set -eu
umask 077
if [ ! -d /var/lib/mysql/mysql ]; then
    mariadb-install-db --no-defaults --datadir=/var/lib/mysql --skip-test-db --auth-root-authentication-method=socket \
        --auth-root-socket-user=mysql >/tmp/install.log 2>&1 || { cat /tmp/install.log >&2; exit 1; }
fi
cat >/tmp/init.sql <<SQL
CREATE DATABASE IF NOT EXISTS slurm_acct;
CREATE USER IF NOT EXISTS 'slurm'@'%';
ALTER USER 'slurm'@'%' IDENTIFIED BY '$EJB_DB_PASSWORD';
GRANT ALL ON slurm_acct.* TO 'slurm'@'%';
SQL
exec mariadbd --no-defaults --datadir=/var/lib/mysql --socket=/run/mysqld/mysqld.sock --bind-address=0.0.0.0 \
    --init-file=/tmp/init.sql --innodb-buffer-pool-size=64M --innodb-log-file-size=16M --innodb-lock-wait-timeout=900
