#!/usr/bin/env bash
# Runs a job in a virtual machine whose kernel has a soft RDMA card (Soft-RoCE).
#
#   vm.sh WORK_DIRECTORY JOB
#
# JOB is a script of this file system, with an absolute path. It sees all of this file system,
# read-only; /run and /dev/shm can be written to, and what it leaves in /mnt comes to
# WORK_DIRECTORY/out. The exit code is the job's.
#
# The kernel is Debian's, downloaded once into WORK_DIRECTORY; the machine is emulated (no KVM), so
# this shows what is right, not what is fast. Needs: apt-get, qemu-system-x86_64, cpio, kmod.
set -euo pipefail
work=$(realpath -m "$1")
job=$2
mkdir -p "$work/out"
cd "$work"

# In the order in which they are loaded; crc32_generic has to be there before the card is made.
modules="crc32_generic rdma_rxe ib_uverbs virtio_pci 9p 9pnet_virtio dummy"

prepare() {
    local package version root number=0
    package=$(apt-cache depends linux-image-amd64 | awk '/Depends:/ {print $2; exit}')
    apt-get download -q=2 "$package" busybox-static
    mkdir -p unpacked
    dpkg --fsys-tarfile "$package"*.deb | tar x -C unpacked --wildcards './boot/vmlinuz*' \
        './lib/modules/*/modules.*' './lib/modules/*/kernel/drivers/infiniband/*' \
        './lib/modules/*/kernel/drivers/virtio/*' './lib/modules/*/kernel/drivers/net/*.ko' \
        './lib/modules/*/kernel/net/*' './lib/modules/*/kernel/fs/*' \
        './lib/modules/*/kernel/crypto/*'
    version=$(ls unpacked/lib/modules)
    depmod -b "$work/unpacked" "$version"
    root=$work/initial
    rm -rf "$root"
    mkdir -p "$root"/{bin,proc,sys,dev,modules,host}
    dpkg --fsys-tarfile busybox-static*.deb | tar xO ./bin/busybox >"$root/bin/busybox"
    chmod 755 "$root/bin/busybox"
    for name in sh mount insmod mkdir sed echo chroot poweroff ip; do
        ln -sf busybox "$root/bin/$name"
    done
    for name in $modules; do
        modprobe -d "$work/unpacked" -S "$version" --show-depends "$name" 2>/dev/null || true
    done | awk '/^insmod/ && !seen[$2]++ {print $2}' | while read -r file; do
        cp "$file" "$root/modules/$(printf %02d "$number")-$(basename "$file")"
        number=$((number + 1))
    done
    cat >"$root/init" <<'INIT'
#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in /modules/*.ko; do insmod "$module" || echo "$module cannot be loaded"; done
job=$(sed -n 's/.*job=\([^ ]*\).*/\1/p' /proc/cmdline)
share=trans=virtio,version=9p2000.L,msize=524288
mount -t 9p -o "$share,ro,cache=loose" host /host
mount -t proc proc /host/proc
mount -t sysfs sys /host/sys
mount -o bind /dev /host/dev
mkdir -p /host/dev/shm
mount -t tmpfs shm /host/dev/shm
mount -t tmpfs run /host/run
mount -t 9p -o "$share,rw" out /host/mnt
ip link set lo up
chroot /host /bin/bash "$job"
echo $? >/host/mnt/status
poweroff -f
INIT
    chmod +x "$root/init"
    (cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >initrd
    cp unpacked/boot/vmlinuz* vmlinuz
    rm -rf unpacked
}

[[ -f vmlinuz && -f initrd ]] || prepare
rm -f out/status
timeout 900 qemu-system-x86_64 -accel tcg,thread=multi -cpu max -m 1024 -smp 2 -nographic \
    -no-reboot -nodefaults -serial stdio -kernel vmlinuz -initrd initrd \
    -virtfs "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap" \
    -virtfs "local,path=$work/out,mount_tag=out,security_model=none" \
    -append "console=ttyS0 quiet panic=-1 mitigations=off job=$job" </dev/null >out/console
[[ -f out/status ]] || {
    tail -20 out/console >&2
    echo "the virtual machine ended without the job" >&2
    exit 1
}
exit "$(cat out/status)"
