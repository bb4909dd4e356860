//! Measures the proxy beside direct connections, squid and tinyproxy over loopback, in turns: new connections, kept
//! connections, one bulk tunnel, the latency of one question, and the memory of idle tunnels.
//!
//! Each proxy is a process of its own, and so are origin and client: the kernel's calls take longer where several threads share
//! one table of descriptors, and ours would have shared its with both of them, which no neighbour does.
//! `cargo bench -p ringfence-egress --bench proxy`; with `-- WORD ...` only figures whose name has one of the words.

#![allow(clippy::print_stdout, reason = "a benchmark reports on stdout")]

use std::io::{self, BufRead};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ringfence_egress::{Identity, Limits, Proxy, Rules};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const AT_ONCE: usize = 16;
const ROUNDS: usize = 5;
const SPAN: Duration = Duration::from_secs(1);
const BULK: usize = 1024 * 1024 * 1024;
const IDLE: usize = 1000;
const QUESTIONS: usize = 500;
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[derive(Clone, Copy)]
enum Way {
    Direct(SocketAddr),
    Tunnel(SocketAddr, SocketAddr),
    Forward(SocketAddr, SocketAddr),
}

/// What a process that this program starts is: our proxy in front of the origin at the port behind the name, or the origin.
const ROLE: &str = "RINGFENCE_BENCH_ROLE";
const PROXY: &str = "proxy";
const ORIGIN: &str = "origin";

fn main() -> io::Result<()> {
    match std::env::var(ROLE) {
        Ok(role) => play(&role),
        Err(_) => measure_all(),
    }
}

fn measure_all() -> io::Result<()> {
    let origin = Played::begin(ORIGIN)?;
    let proxy = Played::begin(&format!("{PROXY} {}", origin.at.port()))?;
    let (origin, ours) = (origin.at, proxy.at);
    let folder = tempfile::tempdir()?;
    let neighbours: Vec<Neighbour> =
        [Neighbour::squid(folder.path(), origin), Neighbour::tinyproxy(folder.path(), origin)]
            .into_iter()
            .filter_map(|started| started.inspect_err(|why| println!("SKIPPED: {why}")).ok())
            .collect();
    let mut ways = vec![
        ("direct", Way::Direct(origin)),
        ("ours_tunnel", Way::Tunnel(ours, origin)),
        ("ours_forward", Way::Forward(ours, origin)),
    ];
    for neighbour in &neighbours {
        ways.push((neighbour.tunnel, Way::Tunnel(neighbour.at, origin)));
        ways.push((neighbour.forward, Way::Forward(neighbour.at, origin)));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        in_turns(&ways, "new_connections", "/s", new_connections).await?;
        let stat_of = |one: &Neighbour| (one.at, format!("/proc/{}/stat", one.process.id()));
        let ours_stat = (ours, format!("/proc/{}/stat", proxy.process.id()));
        let stats: Vec<(SocketAddr, String)> = neighbours.iter().map(stat_of).chain([ours_stat]).collect();
        let tunnels: Vec<_> = ways.iter().copied().filter(|(_, way)| matches!(way, Way::Tunnel(..))).collect();
        // What the proxy itself takes: other work on the machine, and how the three share two processors, change it less than how many
        // there are in a second.
        let proxy_of = |way| match way {
            Way::Tunnel(proxy, _) => stats.iter().find(|(at, _)| *at == proxy).map(|(_, stat)| stat.as_str()),
            Way::Direct(_) | Way::Forward(..) => None,
        };
        in_turns(&tunnels, "new_connection_cpu", "us", async |way| {
            let stat = proxy_of(way).ok_or(io::ErrorKind::NotFound)?;
            let (start, before) = (Instant::now(), ran(stat)?);
            let rate = new_connections(way).await?;
            Ok((ran(stat)? - before) * 1e6 / (rate * start.elapsed().as_secs_f64()))
        })
        .await?;
        in_turns(&tunnels, "bulk_cpu", "ms/GB", async |way| {
            let stat = proxy_of(way).ok_or(io::ErrorKind::NotFound)?;
            let (start, before) = (Instant::now(), ran(stat)?);
            let rate = bulk(way).await?;
            Ok((ran(stat)? - before) * 1e3 / (rate * start.elapsed().as_secs_f64()))
        })
        .await?;
        in_turns(&ways, "kept_alive", "/s", kept_alive).await?;
        in_turns(&ways, "question", "us", latency).await?;
        let tunnels: Vec<_> = ways.iter().copied().filter(|(_, way)| !matches!(way, Way::Forward(..))).collect();
        in_turns(&tunnels, "bulk", "GB/s", bulk).await?;
        let before = resident(&proxy.process)?;
        let mut idle = Vec::new();
        for _ in 0..IDLE {
            idle.push(connect(Way::Tunnel(ours, origin)).await?);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        println!("egress_idle_tunnel_bytes {} B", resident(&proxy.process)?.saturating_sub(before) / IDLE);
        Ok(())
    })
}

/// Each way once in every round, and the median of each. What a neighbour cannot do is said.
async fn in_turns<F>(ways: &[(&str, Way)], what: &str, unit: &str, measure: impl Fn(Way) -> F) -> io::Result<()>
where
    F: Future<Output = io::Result<f64>>,
{
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let is_wanted = |name: &str| words.is_empty() || words.iter().any(|word| format!("{name}_{what}").contains(word));
    let ways: Vec<_> = ways.iter().filter(|(name, _)| is_wanted(name)).collect();
    let mut figures: Vec<Vec<f64>> = vec![Vec::new(); ways.len()];
    for _ in 0..ROUNDS {
        for ((name, way), figures) in ways.iter().copied().zip(&mut figures) {
            match measure(*way).await {
                Ok(figure) => figures.push(figure),
                Err(error) => println!("egress_{name}_{what}: {error}"),
            }
        }
    }
    for ((name, _), figures) in ways.iter().copied().zip(&mut figures) {
        figures.sort_by(f64::total_cmp);
        if let Some(median) = figures.get(figures.len() / 2) {
            println!("egress_{name}_{what} {median:.2} {unit}");
        }
    }
    Ok(())
}

/// Plays a role until whoever began it is gone: says at which port of loopback, and serves there. As in a supervisor, that is done on
/// a thread and a runtime of its own.
fn play(role: &str) -> io::Result<()> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?.port());
    listener.set_nonblocking(true)?;
    let port = role.strip_prefix(PROXY).and_then(|port| port.trim().parse().ok());
    let serving = move || -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener)?;
            // In a task, as in a supervisor: waking the thread's first future costs a system call.
            match port {
                None => drop(tokio::spawn(serve_origin(listener)).await?),
                Some(port) => {
                    let rules = Rules::none().localhost(port);
                    let limits = Limits { connections: 4096, ..Limits::default() };
                    let proxy = Proxy::builder(Identity::new("bench", "bench"), rules).limits(limits).build();
                    drop(tokio::spawn(async move { proxy.serve(listener).await }).await?);
                }
            }
            Ok(())
        })
    };
    std::thread::spawn(serving);
    // The end of it is the end of whoever began us.
    io::copy(&mut io::stdin(), &mut io::sink()).map(drop)
}

/// This program in another process and role, for as long as this lives.
struct Played {
    at: SocketAddr,
    process: Child,
}

impl Played {
    fn begin(role: &str) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut process = command.env(ROLE, role).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        io::BufReader::new(process.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?).read_line(&mut line)?;
        let port: u16 = line.trim().parse().map_err(io::Error::other)?;
        Ok(Self { at: (std::net::Ipv4Addr::LOCALHOST, port).into(), process })
    }
}

impl Drop for Played {
    fn drop(&mut self) {
        self.process.kill().and_then(|()| self.process.wait()).ok();
    }
}

/// Another proxy, for as long as this lives.
struct Neighbour {
    tunnel: &'static str,
    forward: &'static str,
    at: SocketAddr,
    process: Child,
}

impl Neighbour {
    fn squid(folder: &std::path::Path, origin: SocketAddr) -> io::Result<Self> {
        let at = free_port()?;
        let folder_shown = folder.display();
        let config = format!(
            "http_port 127.0.0.1:{}\nacl out port {}\nhttp_access allow out\nhttp_access deny all\ncache deny all\naccess_log none\n\
             cache_log /dev/null\ncache_store_log none\npid_filename {folder_shown}/squid.pid\ncoredump_dir {folder_shown}\n\
             max_filedescriptors 8192\nshutdown_lifetime 0 seconds\n",
            at.port(),
            origin.port(),
        );
        let file = folder.join("squid.conf");
        std::fs::write(&file, config)?;
        let mut command = Command::new("squid");
        command.arg("-N").arg("-f").arg(&file);
        Self::start(command, "squid_tunnel", "squid_forward", at)
    }

    fn tinyproxy(folder: &std::path::Path, origin: SocketAddr) -> io::Result<Self> {
        let at = free_port()?;
        let config = format!(
            "Port {}\nListen 127.0.0.1\nTimeout 60\nMaxClients 4096\nConnectPort {}\nLogLevel Critical\n",
            at.port(),
            origin.port(),
        );
        let file = folder.join("tinyproxy.conf");
        std::fs::write(&file, config)?;
        let mut command = Command::new("tinyproxy");
        command.arg("-d").arg("-c").arg(&file);
        Self::start(command, "tinyproxy_tunnel", "tinyproxy_forward", at)
    }

    fn start(mut command: Command, tunnel: &'static str, forward: &'static str, at: SocketAddr) -> io::Result<Self> {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let name = quiet.get_program().to_string_lossy().into_owned();
        let process = quiet.spawn().map_err(|error| io::Error::other(format!("{name}: {error}")))?;
        let neighbour = Self { tunnel, forward, at, process };
        let until = Instant::now() + Duration::from_secs(20);
        while std::net::TcpStream::connect(at).is_err() {
            if Instant::now() > until {
                return Err(io::Error::other(format!("{name} does not listen")));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(neighbour)
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.process.kill().and_then(|()| self.process.wait()).ok();
    }
}

fn free_port() -> io::Result<SocketAddr> {
    std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()
}

/// Answers every request with two bytes, and a request for `/bulk` with many.
async fn serve_origin(listener: TcpListener) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        drop(tokio::spawn(answer(stream)));
    }
}

async fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(1024);
    loop {
        buffer.clear();
        while !buffer.ends_with(b"\r\n\r\n") {
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        }
        if buffer.starts_with(b"GET /bulk") {
            let piece = vec![0; 1024 * 1024];
            for _ in 0..BULK / piece.len() {
                stream.write_all(&piece).await?;
            }
            return stream.shutdown().await;
        }
        stream.write_all(ANSWER).await?;
    }
}

async fn connect(way: Way) -> io::Result<TcpStream> {
    let (to, origin) = match way {
        Way::Direct(origin) => (origin, None),
        Way::Tunnel(proxy, origin) => (proxy, Some(origin)),
        Way::Forward(proxy, _) => (proxy, None),
    };
    let mut stream = TcpStream::connect(to).await?;
    stream.set_nodelay(true)?;
    if let Some(origin) = origin {
        stream.write_all(format!("CONNECT {origin} HTTP/1.1\r\nHost: {origin}\r\n\r\n").as_bytes()).await?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            if stream.read_buf(&mut answer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
    Ok(stream)
}

fn request(way: Way) -> String {
    match way {
        Way::Direct(origin) | Way::Tunnel(_, origin) => format!("GET / HTTP/1.1\r\nHost: {origin}\r\n\r\n"),
        Way::Forward(_, origin) => format!("GET http://{origin}/ HTTP/1.1\r\nHost: {origin}\r\n\r\n"),
    }
}

async fn ask(stream: &mut TcpStream, request: &str) -> io::Result<()> {
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::with_capacity(256);
    while !answer.ends_with(b"\r\n\r\nok") {
        if stream.read_buf(&mut answer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

async fn new_connections(way: Way) -> io::Result<f64> {
    rate(move |until| async move {
        let mut count = 0_u32;
        while Instant::now() < until {
            ask(&mut connect(way).await?, &request(way)).await?;
            count += 1;
        }
        Ok(count)
    })
    .await
}

async fn kept_alive(way: Way) -> io::Result<f64> {
    rate(move |until| async move {
        let mut stream = connect(way).await?;
        let request = request(way);
        let mut count = 0_u32;
        while Instant::now() < until {
            ask(&mut stream, &request).await?;
            count += 1;
        }
        Ok(count)
    })
    .await
}

/// What one question on a kept connection takes, at the median.
async fn latency(way: Way) -> io::Result<f64> {
    let mut stream = connect(way).await?;
    let request = request(way);
    let mut times = Vec::with_capacity(QUESTIONS);
    for _ in 0..QUESTIONS {
        let start = Instant::now();
        ask(&mut stream, &request).await?;
        times.push(start.elapsed());
    }
    times.sort();
    Ok(times.get(QUESTIONS / 2).copied().unwrap_or_default().as_secs_f64() * 1e6)
}

async fn rate<F>(work: impl Fn(Instant) -> F) -> io::Result<f64>
where
    F: Future<Output = io::Result<u32>> + Send + 'static,
{
    let start = Instant::now();
    let workers: Vec<_> = (0..AT_ONCE).map(|_| tokio::spawn(work(start + SPAN))).collect();
    let mut total = 0;
    for worker in workers {
        total += worker.await??;
    }
    Ok(f64::from(total) / start.elapsed().as_secs_f64())
}

async fn bulk(way: Way) -> io::Result<f64> {
    let mut stream = connect(way).await?;
    let start = Instant::now();
    stream.write_all(b"GET /bulk HTTP/1.1\r\n\r\n").await?;
    let mut buffer = vec![0; 1024 * 1024];
    let mut total = 0;
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(total as f64 / 1e9 / start.elapsed().as_secs_f64()),
            length => total += length,
        }
    }
}

/// Seconds that a process has run, in hundredths.
fn ran(stat: &str) -> io::Result<f64> {
    let text = std::fs::read_to_string(stat)?;
    let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
    Ok(fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0)
}

fn resident(process: &Child) -> io::Result<usize> {
    let text = std::fs::read_to_string(format!("/proc/{}/statm", process.id()))?;
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.map(|pages| pages * 4096).ok_or_else(|| io::ErrorKind::InvalidData.into())
}
