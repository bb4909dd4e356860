//! Looking names up: once, after the decision, and here alone.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::ResolveHosts;
use rustix::io::Errno;
use rustix::net::sockopt::set_tcp_nodelay;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};
use tokio::net::TcpStream;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::address::{self, CameBy};
use crate::host::Host;
use crate::rules::Rules;
use crate::upstream::Gate;

/// Looks names up. Asked once for each connection, for names that are allowed, in canonical form.
pub trait Resolve: fmt::Debug + Send + Sync {
    /// All addresses of `name`, best first.
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// The resolver of the system that the proxy runs on: its file of hosts, and then the servers that it names. Not by libc,
/// which loads parts of its resolver while it runs: a static program cannot rely on that.
#[derive(Clone, Default)]
pub struct SystemResolver(Arc<OnceCell<TokioResolver>>);

impl fmt::Debug for SystemResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SystemResolver")
    }
}

/// Where this system keeps names of its own, and how much of it is read.
const HOSTS: &str = "/etc/hosts";
const LONGEST_HOSTS: u64 = 1024 * 1024;

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let listed = in_hosts(&read_hosts(HOSTS).await?, name);
            if !listed.is_empty() {
                return Ok(listed);
            }
            let Self(servers) = self;
            let servers = servers.get_or_try_init(servers_of_this_system).await?;
            // The dot at the end keeps the host's search domains out: `pypi.org` is never `pypi.org.corp.example`.
            let found = servers.lookup_ip(format!("{name}.")).await.map_err(io::Error::other)?;
            Ok(found.iter().collect())
        })
    }
}

async fn servers_of_this_system() -> io::Result<TokioResolver> {
    let mut builder = TokioResolver::builder_tokio().map_err(io::Error::other)?;
    let options = builder.options_mut();
    // That was read before. Nothing is remembered here either: an answer is used once.
    options.use_hosts_file = ResolveHosts::Never;
    options.cache_size = 0;
    builder.build().map_err(io::Error::other)
}

async fn read_hosts(path: impl AsRef<Path>) -> io::Result<String> {
    let path = path.as_ref().to_owned();
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => tokio::task::spawn_blocking(move || read_now(&path)).await?,
        // A process with one thread may need to stay one, and a file of the system is read in no time.
        _ => read_now(&path),
    }
}

fn read_now(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(LONGEST_HOSTS + 1).read_to_end(&mut bytes).map(drop)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > LONGEST_HOSTS {
        // What is not read may be what leads a name elsewhere.
        let text = format!("{} has more than {LONGEST_HOSTS} bytes, which are not read", path.display());
        return Err(io::Error::other(text));
    }
    // A comment may be in any writing.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The addresses of `name` in a file of hosts.
fn in_hosts(text: &str, name: &str) -> Vec<IpAddr> {
    let listed = |line: &str| {
        let line = line.split('#').next()?;
        let (address, names) = line.trim().split_once([' ', '\t'])?;
        let named = names.split_whitespace().any(|known| known.eq_ignore_ascii_case(name));
        if named { address.parse().ok() } else { None }
    };
    text.lines().filter_map(listed).collect()
}

/// The most addresses of one answer that are looked at.
const MOST_ADDRESSES: usize = 64;
/// The most addresses that are dialled, one after the other.
const MOST_DIALLED: usize = 4;

/// With another proxy above ours, names are looked up there. Who cannot look them up here does not wait long to find out.
const LOOK_UNDER_GATE: Duration = Duration::from_secs(2);

/// Addresses that were judged. Nothing else is dialled, so a name that is looked up again can change nothing.
#[derive(Debug, Clone)]
pub(crate) enum Checked {
    /// Dialled here.
    Direct(Vec<SocketAddr>),
    /// Asked for there: by name, so that nobody here knows which address is dialled in the end.
    Through {
        /// The proxy above ours.
        gate: Arc<Gate>,
        /// `HOST:PORT`.
        authority: String,
    },
}

impl Checked {
    /// The proxy that it goes through.
    pub(crate) fn through(&self) -> Option<&Arc<Gate>> {
        match self {
            Self::Direct(_) => None,
            Self::Through { gate, .. } => Some(gate),
        }
    }
}

/// Why there are none.
#[derive(Debug)]
pub(crate) enum Unchecked {
    /// An address that may not be reached.
    Denied(String),
    /// The name could not be looked up.
    Failed(io::Error),
}

/// Looks `host` up and judges every address. One that may not be reached spoils the answer: it is not what was allowed.
///
/// Through a gate go hosts that everybody reaches. One that cannot be looked up here goes there unjudged: whoever names a proxy in the
/// policy has said that it finds names. What is inside is never left to the gate.
pub(crate) async fn check(
    rules: &Rules,
    resolver: &dyn Resolve,
    gate: Option<&Arc<Gate>>,
    host: &Host,
    port: u16,
    limit: Duration,
) -> Result<Checked, Unchecked> {
    let Some(gate) = gate else { return find(rules, resolver, host, port, limit).await.map(Checked::Direct) };
    let through = || Checked::Through { gate: Arc::clone(gate), authority: format!("{}:{port}", host.in_url()) };
    match find(rules, resolver, host, port, limit.min(LOOK_UNDER_GATE)).await {
        Ok(found) if found.iter().all(|address| address::is_public(address.ip())) => Ok(through()),
        Ok(inside) => Ok(Checked::Direct(inside)),
        Err(Unchecked::Failed(_)) if matches!(host, Host::Name(_)) => Ok(through()),
        Err(unchecked) => Err(unchecked),
    }
}

async fn find(
    rules: &Rules,
    resolver: &dyn Resolve,
    host: &Host,
    port: u16,
    limit: Duration,
) -> Result<Vec<SocketAddr>, Unchecked> {
    let came_by = if host.addresses().is_some() { CameBy::Itself } else { CameBy::Name };
    let found = match (host.addresses(), host) {
        (Some(addresses), _) => addresses,
        (None, host) => match timeout(limit, resolver.resolve(&host.to_string())).await {
            Ok(answer) => answer.map_err(Unchecked::Failed)?,
            Err(elapsed) => return Err(Unchecked::Failed(elapsed.into())),
        },
    };
    if found.is_empty() {
        return Err(Unchecked::Failed(io::Error::new(io::ErrorKind::NotFound, "the name has no address")));
    }
    if found.len() > MOST_ADDRESSES {
        return Err(Unchecked::Denied(format!("it has {} addresses, too many to be judged", found.len())));
    }
    for address in &found {
        address::judge(rules, *address, port, came_by).map_err(Unchecked::Denied)?;
    }
    Ok(found.into_iter().map(|address| SocketAddr::new(address, port)).collect())
}

/// A connection to the outside, and whose address it was made to.
#[derive(Debug)]
pub(crate) struct Dialled {
    pub(crate) stream: TcpStream,
    pub(crate) address: IpAddr,
}

/// Connects to the first checked address that answers.
pub(crate) async fn dial(checked: &Checked, limit: Duration) -> io::Result<Dialled> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    let addresses = match checked {
        Checked::Direct(addresses) => addresses,
        Checked::Through { gate, authority } => return Box::pin(gate.tunnel(authority, limit)).await,
    };
    for address in addresses.iter().take(MOST_DIALLED) {
        match connect(address, limit).await {
            Ok(stream) => return Ok(Dialled { stream, address: address.ip() }),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Connects to `address`. Where that answers at once, nothing is waited for: neither a turn of the event loop nor a timer.
async fn connect(address: &SocketAddr, limit: Duration) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket =
        socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, Some(ipproto::TCP))?;
    // Little things are sent at once.
    set_tcp_nodelay(&socket, true)?;
    let began = match rustix::net::connect(&socket, address) {
        // On this machine the other side has answered by now. Asking once more tells so, or why not.
        Err(Errno::INPROGRESS) => rustix::net::connect(&socket, address),
        began => began,
    };
    let stream = |socket: OwnedFd| TcpStream::from_std(socket.into());
    match began {
        Ok(()) | Err(Errno::ISCONN) => stream(socket),
        Err(Errno::INPROGRESS | Errno::ALREADY | Errno::INTR) => {
            let stream = stream(socket)?;
            timeout(limit, stream.writable()).await??;
            match stream.take_error()? {
                None => Ok(stream),
                Some(error) => Err(error),
            }
        }
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_hosts_names_addresses_by_whole_names() {
        let text =
            "127.0.0.1\tlocalhost\n# 10.0.0.1 a.test\n10.0.0.2  a.test B.test # c.test\n::1 b.test\nnonsense b.test\n";
        let check = |name: &str, expected: &[&str]| {
            let expected: Vec<IpAddr> = expected.iter().map(|text| text.parse().unwrap()).collect();
            assert_eq!(in_hosts(text, name), expected, "{name}");
        };
        check("a.test", &["10.0.0.2"]);
        check("b.test", &["10.0.0.2", "::1"]);
        check("c.test", &[]);
        check("test", &[]);
    }

    #[tokio::test]
    async fn a_process_with_one_thread_stays_one() {
        let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
        let before = threads();
        read_hosts("/etc/hosts").await.unwrap();
        assert_eq!(threads(), before);
        tokio::task::spawn_blocking(|| ()).await.unwrap();
        assert_eq!(threads(), before + 1, "the probe proves nothing");
    }

    #[tokio::test]
    async fn a_file_of_hosts_that_is_too_long_is_not_read_in_part_and_none_is_an_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hosts");
        assert_eq!(read_hosts(&file).await.unwrap(), "");
        let last = "\n10.0.0.7 last.test\n";
        let longest = usize::try_from(LONGEST_HOSTS).unwrap();
        std::fs::write(&file, "#".repeat(longest - last.len()) + last).unwrap();
        assert_eq!(in_hosts(&read_hosts(&file).await.unwrap(), "last.test"), ["10.0.0.7".parse::<IpAddr>().unwrap()]);
        std::fs::write(&file, "#".repeat(longest - last.len() + 1) + last).unwrap();
        assert!(read_hosts(&file).await.unwrap_err().to_string().contains("has more than"));
    }

    /// Says that a name has so many addresses.
    #[derive(Debug)]
    struct Many(usize);

    impl Resolve for Many {
        fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
            Box::pin(async { Ok(vec![IpAddr::from([93, 184, 216, 34]); self.0]) })
        }
    }

    #[tokio::test]
    async fn a_name_with_too_many_addresses_is_denied_and_not_left_to_another_proxy() {
        let (rules, host) = (Rules::none(), Host::parse("a.test").unwrap());
        let found = |count| {
            let (rules, host) = (&rules, &host);
            async move { find(rules, &Many(count), host, 443, Duration::from_secs(1)).await }
        };
        assert!(matches!(found(MOST_ADDRESSES + 1).await, Err(Unchecked::Denied(_))));
        assert!(matches!(found(0).await, Err(Unchecked::Failed(_))));
        assert_eq!(found(MOST_ADDRESSES).await.unwrap().len(), MOST_ADDRESSES);
    }

    #[tokio::test]
    async fn whoever_answers_is_connected_at_once_and_whoever_does_not_is_given_up_with_the_reason() {
        let limit = Duration::from_secs(5);
        for at in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = tokio::net::TcpListener::bind(at).await else { continue };
            let address = listener.local_addr().unwrap();
            let stream = connect(&address, limit).await.unwrap();
            assert!(stream.nodelay().unwrap() && stream.peer_addr().unwrap() == address);
            let (accepted, _) = listener.accept().await.unwrap();
            accepted.try_write(b"x").unwrap();
            stream.readable().await.unwrap();
            assert_eq!(stream.try_read(&mut [0; 2]).unwrap(), 1);
            drop((listener, accepted));
            let refused = connect(&address, limit).await.unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        }
    }

    #[tokio::test]
    async fn whoever_never_answers_is_waited_for_no_longer_than_the_limit() {
        // Its queue is full, so that the kernel answers nobody.
        let listener = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&listener, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let address = SocketAddr::try_from(rustix::net::getsockname(&listener).unwrap()).unwrap();
        let mut held = Vec::new();
        for _ in 0..8 {
            match connect(&address, Duration::from_millis(200)).await {
                Ok(stream) => held.push(stream),
                Err(error) => return assert_eq!(error.kind(), io::ErrorKind::TimedOut),
            }
        }
        panic!("the probe proves nothing: {} were answered", held.len());
    }

    #[tokio::test]
    async fn the_system_knows_itself() {
        let found = SystemResolver::default().resolve("localhost").await.unwrap();
        assert!(!found.is_empty() && found.iter().all(IpAddr::is_loopback), "{found:?}");
    }
}
