//! What the kernel takes for each step of a native start, one by one: which namespace, which mount, which exec.
//!
//! Each sample is a process of its own: most of these steps can be taken once.

#![allow(unsafe_code, reason = "the steps are system calls")]
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints its figures and stops at the first failure"
)]

use std::fs;
use std::io::{Read, Write};
use std::mem::forget;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::time::{Duration, Instant};

use libc::c_int;
use ringfence_linux::cgroup::{self, Limits};
use ringfence_linux::privileges::{Bounding, drop_all, set_no_new_privileges};
use ringfence_linux::seccomp;
use rustix::fs::CWD;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen, move_mount, open_tree, unmount,
};

const SAMPLES: usize = 51;
const SPACES: [(&str, c_int); 7] = [
    ("user", libc::CLONE_NEWUSER),
    ("mount", libc::CLONE_NEWNS),
    ("pid", libc::CLONE_NEWPID),
    ("net", libc::CLONE_NEWNET),
    ("ipc", libc::CLONE_NEWIPC),
    ("uts", libc::CLONE_NEWUTS),
    ("cgroup", libc::CLONE_NEWCGROUP),
];

fn main() {
    for (name, space) in SPACES {
        let user = if space == libc::CLONE_NEWUSER { 0 } else { libc::CLONE_NEWUSER };
        show(&format!("unshare_{name}"), || {
            unshare(user);
            timed(|| unshare(space))
        });
    }
    show("mount_tmpfs", || inside(|| forget(file_system("tmpfs", &[("size", "64m")]))));
    show("mount_proc", || inside(|| forget(file_system("proc", &[]))));
    show("mount_devpts", || inside(|| forget(file_system("devpts", &[("mode", "0620")]))));
    show("mount_overlay", || {
        become_inside();
        attach(&file_system("tmpfs", &[("size", "64m")]), "/tmp");
        for folder in ["/tmp/lower", "/tmp/upper", "/tmp/work"] {
            fs::create_dir(folder).unwrap();
        }
        let options = [("lowerdir", "/tmp/lower"), ("upperdir", "/tmp/upper"), ("workdir", "/tmp/work")];
        timed(|| forget(file_system("overlay", &options)))
    });
    show("bind", || inside(|| attach(&open_tree(CWD, "/usr", OpenTreeFlags::OPEN_TREE_CLONE).unwrap(), "/tmp")));
    show("pivot_and_detach", || {
        become_inside();
        let root = file_system("tmpfs", &[("size", "64m")]);
        attach(&root, "/");
        rustix::process::fchdir(&root).unwrap();
        timed(|| {
            rustix::process::pivot_root(".", ".").unwrap();
            unmount(".", UnmountFlags::DETACH).unwrap();
        })
    });
    show("seccomp_filter", || {
        set_no_new_privileges().unwrap();
        let program = seccomp::program();
        timed(|| seccomp::install(program).unwrap())
    });
    show("drop_capabilities", || inside(|| assert_eq!(drop_all().unwrap(), Bounding::Empty)));
    if let Ok(hierarchy) = cgroup::probe() {
        let name = cgroup::name_for("bench").unwrap();
        let limits = Limits { memory: Some(1 << 30), processes: Some(64), cpu_millis: Some(1000) };
        let mut times: [Vec<Duration>; 2] = Default::default();
        for _ in 0..SAMPLES {
            let mut group = None;
            times[0].push(timed(|| group = Some(hierarchy.create(&name, &limits).unwrap())));
            times[1].push(timed(|| drop(group)));
        }
        let [make, remove] = times.map(median);
        println!("step_cgroup_make_with_limits {} us", make.as_micros());
        println!("step_cgroup_remove {} us", remove.as_micros());
    }
    let start = || timed(|| assert!(Command::new("/bin/true").status().unwrap().success()));
    println!("step_start_of_a_dynamic_program {} us", median((0..SAMPLES).map(|_| start()).collect()).as_micros());
}

/// Takes a sample in a process of its own, again and again.
fn show(name: &str, sample: impl Fn() -> Duration) {
    let mut times: Vec<Duration> = (0..SAMPLES).filter_map(|_| in_child(&sample)).collect();
    if times.len() < SAMPLES {
        println!("{name} could not be measured here");
        return;
    }
    times.sort_unstable();
    println!("step_{name} {} us", times[SAMPLES / 2].as_micros());
}

fn in_child(sample: &impl Fn() -> Duration) -> Option<Duration> {
    let (read, write) = rustix::pipe::pipe().unwrap();
    // SAFETY: this program has one thread, so the child may go on with any code; it leaves by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let nanoseconds = u64::try_from(sample().as_nanos()).unwrap();
        fs::File::from(write).write_all(&nanoseconds.to_le_bytes()).unwrap();
        // SAFETY: takes an integer and does not return.
        unsafe { libc::_exit(0) };
    }
    drop(write);
    let mut bytes = [0u8; 8];
    let told = fs::File::from(read).read_exact(&mut bytes);
    // SAFETY: a null pointer is allowed for the status; the child is ours.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    told.ok().map(|()| Duration::from_nanos(u64::from_le_bytes(bytes)))
}

fn unshare(spaces: c_int) {
    // SAFETY: takes an integer; this process has one thread.
    assert_eq!(unsafe { libc::unshare(spaces) }, 0, "{}", std::io::Error::last_os_error());
}

/// Process 1 of its own namespaces, mapped to itself.
fn become_inside() {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWNET);
    fs::write("/proc/self/setgroups", "deny").unwrap();
    fs::write("/proc/self/uid_map", format!("0 {uid} 1")).unwrap();
    fs::write("/proc/self/gid_map", format!("0 {gid} 1")).unwrap();
    rustix::mount::mount_change(
        "/",
        rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC,
    )
    .unwrap();
    // SAFETY: one thread, as above. The parent only waits.
    let child = unsafe { libc::fork() };
    if child != 0 {
        // SAFETY: a null pointer is allowed for the status; then the process ends.
        unsafe {
            libc::waitpid(child, std::ptr::null_mut(), 0);
            libc::_exit(0)
        }
    }
}

fn inside(step: impl FnOnce()) -> Duration {
    become_inside();
    timed(step)
}

fn file_system(kind: &str, options: &[(&str, &str)]) -> OwnedFd {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC).unwrap();
    for (name, value) in options {
        fsconfig_set_string(&context, *name, *value).unwrap();
    }
    fsconfig_create(&context).unwrap();
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_NOSUID).unwrap()
}

fn attach(tree: &OwnedFd, at: &str) {
    move_mount(tree, "", CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).unwrap();
}

fn timed(step: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    step();
    begin.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
