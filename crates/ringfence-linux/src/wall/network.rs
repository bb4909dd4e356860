//! The wall's network namespace, made by a process of its own while the first one builds the view: it takes the kernel as
//! long as all mounts together.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};

use libc::{c_int, c_void};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use crate::keeper_process::CONTROL;

const STACK: usize = 32 * 1024;

/// A network namespace in the making. Its maker shares our memory and our descriptors.
pub(super) struct Network {
    maker: c_int,
    /// The namespace's descriptor, once it is there.
    made: Box<AtomicI32>,
    /// The maker runs on it as long as it lives.
    stack: Vec<MaybeUninit<u128>>,
}

impl Network {
    /// Begins to make it. The caller is process 1 of a new process namespace, owns its user namespace and has one thread.
    pub(super) fn begin() -> io::Result<Self> {
        occupy_arranged()?;
        let made = Box::new(AtomicI32::new(-1));
        let mut stack: Vec<MaybeUninit<u128>> = Vec::with_capacity(STACK / size_of::<u128>());
        // SAFETY: the stack is ours, aligned and large enough for a few system calls; the pointer is one past its end,
        // because stacks grow down. `made` and `stack` are on the heap, and `join`, the only way to let go of them, waits
        // for the maker's end first; so they outlive its use of them. Of our memory the maker touches nothing else: it
        // calls the kernel without libc, whose `errno` would be ours.
        let maker = unsafe {
            libc::clone(
                make,
                stack.as_mut_ptr().add(stack.capacity()).cast::<c_void>(),
                libc::CLONE_VM | libc::CLONE_FILES,
                std::ptr::from_ref(&*made).cast_mut().cast::<c_void>(),
            )
        };
        if maker < 0 { Err(io::Error::last_os_error()) } else { Ok(Self { maker, made, stack }) }
    }

    /// Waits until it is made, with its loopback interface up, and moves into it.
    pub(super) fn join(self) -> io::Result<()> {
        let Self { maker, made, stack } = self;
        let ended = loop {
            let mut status = 0;
            // SAFETY: `status` is valid for writing. `__WALL`, because the maker's end sends no signal.
            let waited = unsafe { libc::waitpid(maker, &raw mut status, libc::__WALL) };
            match (waited, io::Error::last_os_error()) {
                (-1, error) if error.kind() == io::ErrorKind::Interrupted => {}
                (-1, error) => {
                    // The maker may still run: its memory is left to it.
                    std::mem::forget((made, stack));
                    return Err(error);
                }
                _ => break status,
            }
        };
        let namespace = made.load(Ordering::Acquire);
        if !libc::WIFEXITED(ended) || libc::WEXITSTATUS(ended) != 0 || namespace < 0 {
            return Err(io::Error::from_raw_os_error(libc::WEXITSTATUS(ended)));
        }
        // SAFETY: the maker opened it in the table of descriptors that we share, for us, and is gone.
        let namespace = unsafe { OwnedFd::from_raw_fd(namespace) };
        rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(())
    }
}

/// Makes sure that no descriptor which the maker opens gets a number at which ours are arranged meanwhile.
fn occupy_arranged() -> io::Result<()> {
    loop {
        let taken = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?.into_raw_fd();
        if taken > CONTROL {
            // SAFETY: opened just now, and owned by nobody else.
            drop(unsafe { OwnedFd::from_raw_fd(taken) });
            return Ok(());
        }
    }
}

/// The maker's whole life; its exit status is what went wrong.
extern "C" fn make(argument: *mut c_void) -> c_int {
    // SAFETY: the pointer is the `made` of `Network::begin`, which lives until we have ended.
    let made = unsafe { &*argument.cast::<AtomicI32>() };
    let steps = || {
        // SAFETY: a namespace of its own for the network changes nothing that Rust relies on.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
        bring_up_loopback()?;
        rustix::fs::open("/proc/thread-self/ns/net", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
    };
    match steps() {
        Ok(namespace) => {
            made.store(namespace.into_raw_fd(), Ordering::Release);
            0
        }
        Err(errno) => errno.raw_os_error(),
    }
}

fn bring_up_loopback() -> rustix::io::Result<()> {
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: an all-zero ifreq is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads an ifreq, which `request` is, with a NUL-terminated name.
    unsafe {
        let set = rustix::ioctl::Setter::<{ libc::SIOCSIFFLAGS as rustix::ioctl::Opcode }, libc::ifreq>::new(request);
        rustix::ioctl::ioctl(&socket, set)
    }
}
