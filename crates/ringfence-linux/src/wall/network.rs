//! The wall's network namespace, made by a process of its own while the first one builds the view: it takes the kernel as
//! long as all mounts together. Where no processor has time for that, process 1 is born in it.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};

use libc::{c_int, c_void};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use super::companion::Companion;
use crate::keeper_process::CONTROL;

/// A wall's network namespace.
pub(super) enum Network {
    /// In the making. Its maker shares our descriptors, too.
    Coming {
        /// Who makes it.
        maker: Companion,
        /// The namespace's descriptor, once it is there. For ever, because the maker writes it: one number per wall.
        made: &'static AtomicI32,
    },
    /// We were born in it.
    Here,
}

impl Network {
    /// Begins to make it. The caller is process 1 of a new process namespace, owns its user namespace and has one thread.
    pub(super) fn begin() -> io::Result<Self> {
        occupy_arranged()?;
        let made: &'static AtomicI32 = Box::leak(Box::new(AtomicI32::new(-1)));
        // SAFETY: `make` calls the kernel by rustix, which has no `errno`, and touches nothing but `made`, an atomic that
        // lives for ever.
        let maker = unsafe { Companion::start(make, std::ptr::from_ref(made).cast_mut().cast(), libc::CLONE_FILES) }?;
        Ok(Self::Coming { maker, made })
    }

    /// Makes the one that the caller was born in, as process 1 of new namespaces, ready.
    pub(super) fn of_birth() -> io::Result<Self> {
        occupy_arranged()?;
        bring_up_loopback()?;
        Ok(Self::Here)
    }

    /// Waits until it is made, with its loopback interface up, and moves into it.
    pub(super) fn join(self) -> io::Result<()> {
        let Self::Coming { maker, made } = self else { return Ok(()) };
        match maker.wait()? {
            0 => {}
            errno => return Err(io::Error::from_raw_os_error(errno)),
        }
        let namespace = made.load(Ordering::Acquire);
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
    let mut request = request_for("lo");
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    set::<{ libc::SIOCSIFFLAGS as rustix::ioctl::Opcode }>(&any_socket()?, request)
}

/// Gives all addresses that have the first `bits` of `first` to this network's loopback. Of a loopback, and of no other
/// interface, the kernel takes every address of the net for its own: that is why all of 127.0.0.0/8 answers.
pub(super) fn add_addresses(first: Ipv4Addr, bits: u8) -> rustix::io::Result<()> {
    let socket = any_socket()?;
    // A second name of the interface: its own address stays what it is.
    let mut request = request_for("lo:1");
    request.ifr_ifru.ifru_addr = as_sockaddr(first);
    set::<{ libc::SIOCSIFADDR as rustix::ioctl::Opcode }>(&socket, request)?;
    let host_bits = 32u32.saturating_sub(u32::from(bits));
    let mask = u32::MAX.checked_shl(host_bits).unwrap_or(0);
    request.ifr_ifru.ifru_netmask = as_sockaddr(Ipv4Addr::from_bits(mask));
    set::<{ libc::SIOCSIFNETMASK as rustix::ioctl::Opcode }>(&socket, request)
}

/// Interfaces are set through a socket, whichever.
fn any_socket() -> rustix::io::Result<OwnedFd> {
    rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
}

fn request_for(interface: &str) -> libc::ifreq {
    // SAFETY: an all-zero ifreq is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(interface.as_bytes()) {
        *to = *from as libc::c_char;
    }
    request
}

fn as_sockaddr(address: Ipv4Addr) -> libc::sockaddr {
    let [a, b, c, d] = address.octets().map(|byte| byte as libc::c_char);
    // Two bytes of port, then the address.
    libc::sockaddr {
        sa_family: libc::AF_INET as libc::sa_family_t,
        sa_data: [0, 0, a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0],
    }
}

fn set<const WHAT: rustix::ioctl::Opcode>(socket: &OwnedFd, request: libc::ifreq) -> rustix::io::Result<()> {
    // SAFETY: each `WHAT` that this is called with reads an ifreq, which `request` is, with a NUL-terminated name.
    unsafe { rustix::ioctl::ioctl(socket, rustix::ioctl::Setter::<WHAT, libc::ifreq>::new(request)) }
}
