# Makes of this process what a container engine would make of process 1, and executes the guest as it.
# $1: an empty folder for the root. $2: the guest. Runs as root in new namespaces.
set -e
root=$1
ip link set lo up
mount --bind / "$root"
mount -o remount,bind,ro "$root"
mount -t proc proc "$root/proc"
echo 53 > "$root/proc/sys/net/ipv4/ip_unprivileged_port_start"
mount -t tmpfs -o size=64k,mode=755 dev "$root/dev"
for device in null:3 zero:5 full:7 random:8 urandom:9; do
    mknod -m 666 "$root/dev/${device%:*}" c 1 "${device#*:}"
done
mknod -m 666 "$root/dev/tty" c 5 0
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
mount -t tmpfs -o size=8m,mode=1777 shm "$root/dev/shm"
mount -t tmpfs -o size=64k,mode=755 run "$root/run"
touch "$root/run/guest"
mount --bind "$2" "$root/run/guest"
mount -o remount,bind,ro "$root/run/guest"
mount -t tmpfs -o size=16m,mode=1777 tmp "$root/tmp"
exec env -i PATH="$PATH" chroot "$root" \
    setpriv --reuid 1000 --regid 1000 --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs \
    /run/guest guest-of-a-container
