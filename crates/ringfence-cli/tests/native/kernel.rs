//! N rows: privileges, namespaces, files of the kernel.

use std::fs;

use ringfence_testkit::canary::ProcessCanary;

use crate::probe::{Wall, field, is_root, python, run, sh, walled};
use crate::stage::SOON;

#[test]
fn n01_the_program_has_one_id_no_capability_no_way_to_gain_one_and_a_filter() {
    let Some(stage) = walled() else { return };
    let script =
        "cat /proc/self/status; sed 's/^/uid_map /' /proc/self/uid_map; sed 's/^/gid_map /' /proc/self/gid_map";
    let inside = sh(&stage, Wall::Native, script, &[]).expect(0, &[]).text();
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(field(&inside, set).unwrap(), "0000000000000000", "{set}");
    }
    for (name, value) in [("NoNewPrivs", "1"), ("Seccomp", "2"), ("Uid", "1000\t1000\t1000\t1000")] {
        assert_eq!(field(&inside, name).unwrap(), value, "{name}");
    }
    for name in ["uid_map", "gid_map"] {
        let map = field(&inside, name).unwrap();
        let numbers: Vec<u32> = map.split_whitespace().map(|number| number.parse().unwrap()).collect();
        let &[inside, host, count] = &*numbers else { panic!("more than one line: {map}") };
        assert_eq!((inside, count), (1000, 1));
        assert_ne!(host, 0, "the host's root is mapped");
    }
    let bare = sh(&stage, Wall::Bare, script, &[]).text();
    assert_eq!(field(&bare, "Seccomp").unwrap(), "0", "the probe proves nothing");
    assert_ne!(field(&bare, "CapBnd").unwrap(), "0000000000000000", "the probe proves nothing");
}

#[test]
fn n02_no_namespace_can_be_made() {
    let Some(stage) = walled() else { return };
    let script = "for kind in -Urm -U -m -p -n -i -u -C -T; do unshare $kind true && echo made $kind; done; :";
    let ended = sh(&stage, Wall::Native, script, &[]);
    assert_eq!((ended.code, &*ended.text()), (0, ""), "{ended:?}");
    let bare = sh(&stage, Wall::Bare, script, &[]);
    assert!(bare.text().contains("made -Urm"), "the probe proves nothing: {bare:?}");
}

#[test]
fn n11_signals_reach_nobody_outside_and_the_run_still_ends() {
    let Some(stage) = walled() else { return };
    let canary = ProcessCanary::start().unwrap();
    let pid = canary.pid().to_string();
    let supervisor = std::process::id().to_string();
    let script = r#"trap "" TERM; kill -STOP 1; kill -9 1; kill -KILL $PPID; for pid in "$@"; do kill -9 $pid; kill -STOP $pid; done
        echo alive; kill -9 -1; echo alone"#;
    let begin = std::time::Instant::now();
    let ended = run(&stage, Wall::Native, &["--timeout", "10s"], &["sh", "-c", script, "sh", &pid, &supervisor]).run();
    assert!(begin.elapsed() < SOON);
    assert_eq!((ended.code, &*ended.text()), (0, "alive\nalone\n"), "{ended:?}");
    assert!(!canary.died(), "a process of the host was killed");
    let group = sh(&stage, Wall::Native, "kill -9 0; echo not reached", &[]);
    assert_eq!((group.code, &*group.text()), (137, ""), "{group:?}");
    sh(&stage, Wall::Bare, "kill -9 $1", &[&pid]);
    assert!(canary.died(), "the probe proves nothing: it fails without a wall too");
}

#[test]
fn n15_files_of_the_kernel_cannot_be_opened_for_writing() {
    let Some(stage) = walled() else { return };
    // Opened and closed: the twin must not change this machine.
    let code = "
import os
for path in ['/proc/sysrq-trigger', '/proc/sys/kernel/core_pattern', '/proc/sys/kernel/hostname', '/proc/sys/vm/drop_caches',
             '/proc/sys/net/ipv4/ip_forward', '/proc/sys/kernel/modprobe',
             '/sys/fs/cgroup/memory/release_agent', '/sys/fs/cgroup/cgroup.procs', '/sys/kernel/uevent_helper',
             '/sys/power/state', '/proc/kcore', '/dev/mem', '/dev/kmsg', '/proc/1/oom_score_adj', '/proc/irq/0/smp_affinity',
             '/proc/self/loginuid', '/proc/scsi/scsi', '/proc/mtrr']:
    try:
        os.close(os.open(path, os.O_WRONLY)); print(path)
    except OSError: pass
try: os.close(os.open('/proc/kcore', os.O_RDONLY)); print('kcore')
except OSError: pass
for folder in ['/sys', '/boot', '/run/user', '/var/run', '/sys/fs/cgroup', '/proc/sys/fs/binfmt_misc/register']:
    if os.path.lexists(folder): print(folder)
try: print('addresses', len([line for line in open('/proc/kallsyms') if not line.startswith('0000000000000000')]))
except OSError: print('addresses 0')
";
    let Some(ended) = python(&stage, Wall::Native, code, &[]) else { return };
    let own = "/proc/self/loginuid\n";
    assert_eq!(ended.text().replace(own, ""), "addresses 0\n", "{ended:?}");
    let bare = python(&stage, Wall::Bare, code, &[]).unwrap().text();
    assert!(bare.contains("/sys\n"), "the probe proves nothing: {bare}");
    if is_root() {
        assert!(bare.contains("/proc/sys/kernel/core_pattern") && !bare.contains("addresses 0"), "{bare}");
    } else {
        eprintln!("SKIPPED: the twin of opening the kernel's files, which needs root");
    }
}

#[test]
fn n15_no_mount_of_a_control_group_or_of_the_kernels_objects_is_there() {
    let Some(stage) = walled() else { return };
    let script = "cut -d- -f2- /proc/self/mountinfo | cut -d' ' -f2 | sort -u";
    let kinds = sh(&stage, Wall::Native, script, &[]).text();
    for kind in kinds.lines() {
        assert!(!["cgroup", "cgroup2", "sysfs", "debugfs", "tracefs", "securityfs", "bpf"].contains(&kind), "{kinds}");
    }
    assert!(fs::read_to_string("/proc/self/mountinfo").unwrap().contains("sysfs"), "the probe proves nothing");
}

#[test]
fn how_long_the_machine_has_been_up_is_not_told() {
    let Some(stage) = walled() else { return };
    let code = "import time; print(open('/proc/uptime').read().split()[0], time.clock_gettime(time.CLOCK_BOOTTIME), \
        time.monotonic(), time.time() - int([line.split()[1] for line in open('/proc/stat') if 'btime' in line][0]))";
    let seconds = |wall| -> Option<Vec<f64>> {
        let ended = python(&stage, wall, code, &[])?;
        Some(ended.text().split_whitespace().map(|number| number.parse().unwrap()).collect())
    };
    let Some(bare) = seconds(Wall::Bare) else { return };
    if bare[0] < 60.0 {
        eprintln!("SKIPPED: the machine has only just been started");
        return;
    }
    let inside = seconds(Wall::Native).unwrap();
    if inside[0] > 60.0 && !std::path::Path::new("/proc/self/ns/time").exists() {
        eprintln!("SKIPPED: this kernel has no time namespaces");
        return;
    }
    assert!(inside.iter().all(|seconds| (0.0..60.0).contains(seconds)), "{inside:?}, outside {bare:?}");
}
