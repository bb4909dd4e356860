//! The wall's network namespace, made by a process of its own while the first one builds the view: it takes the kernel as
//! long as all mounts together.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};

use libc::{c_int, c_void};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use super::companion::Companion;
use crate::keeper_process::CONTROL;

/// A network namespace in the making. Its maker shares our descriptors, too.
pub(super) struct Network {
    maker: Companion,
    /// The namespace's descriptor, once it is there. For ever, because the maker writes it: one number per wall.
    made: &'static AtomicI32,
}

impl Network {
    /// Begins to make it. The caller is process 1 of a new process namespace, owns its user namespace and has one thread.
    pub(super) fn begin() -> io::Result<Self> {
        occupy_arranged()?;
        let made: &'static AtomicI32 = Box::leak(Box::new(AtomicI32::new(-1)));
        // SAFETY: `make` calls the kernel by rustix, which has no `errno`, and touches nothing but `made`, an atomic that
        // lives for ever.
        let maker = unsafe { Companion::start(make, std::ptr::from_ref(made).cast_mut().cast(), libc::CLONE_FILES) }?;
        Ok(Self { maker, made })
    }

    /// Waits until it is made, with its loopback interface up, and moves into it.
    pub(super) fn join(self) -> io::Result<()> {
        match self.maker.wait()? {
            0 => {}
            errno => return Err(io::Error::from_raw_os_error(errno)),
        }
        let namespace = self.made.load(Ordering::Acquire);
        if namespace <= CONTROL {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // SAFETY: the maker opened it for us, in the table of descriptors that we share, and is gone.
        let namespace = unsafe { OwnedFd::from_raw_fd(namespace) };
        rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(())
    }
}

/// Makes sure that no descriptor which the maker opens gets a number at which ours are arranged meanwhile.
fn occupy_arranged() -> io::Result<()> {
    loop {
        let taken = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        if taken.as_raw_fd() > CONTROL {
            return Ok(());
        }
        // Stays until descriptors are arranged over it.
        std::mem::forget(taken);
    }
}

/// The maker's whole life; its exit status is what went wrong.
extern "C" fn make(argument: *mut c_void) -> c_int {
    // SAFETY: the pointer is the `made` of `Network::begin`.
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
