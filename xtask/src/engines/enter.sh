# Process 1 of an engine's own process and mount namespaces. With it everything ends that the engine started, and no mount
# of the engine is ever seen outside.
#
# enter.sh (with-engine|kept) (root|FOLDER) COMMAND...
#   with-engine  ends when the engine ends
#   kept         stays when the engine ends, so that what it leaves behind can be seen
#   FOLDER       holds `passwd` and `subid`: the engine runs as an ordinary user whom these files know
set -e
after=$1 who=$2
shift 2

# Engines refuse a host that mounts version 2 of the cgroups beside version 1.
if mountpoint -q /sys/fs/cgroup/unified; then
    umount /sys/fs/cgroup/unified
fi
# Short names, and apart from those of the host's engines.
mount -t tmpfs -o mode=755 engine /run
mkdir -m 700 /run/engine
if [ "$who" != root ]; then
    chown 1000:1000 /run/engine
    mount --bind "$who/passwd" /etc/passwd
    mount --bind "$who/subid" /etc/subuid
    mount --bind "$who/subid" /etc/subgid
fi

"$@" &
engine=$!
trap 'kill -TERM $engine 2> /dev/null || exit 0' TERM
# Also takes leave of those whose parents are gone: an engine asks whether they live.
while kill -0 $engine 2> /dev/null; do
    wait $engine || :
done
while [ "$after" = kept ]; do
    sleep 1
done
