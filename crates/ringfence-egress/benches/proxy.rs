//! Measures the proxy beside direct connections, squid and tinyproxy over loopback, in turns: new connections, kept
//! connections, one bulk tunnel, the latency of one question, and the memory of idle tunnels.
//! `cargo bench -p ringfence-egress --bench proxy`; with `-- WORD ...` only figures whose name has one of the words.

#![allow(clippy::print_stdout, reason = "a benchmark reports on stdout")]

use std::io;
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

fn main() -> io::Result<()> {
    let origin = listening_thread("origin", |listener| async move { drop(serve_origin(listener).await) })?;
    let rules = Rules::none().localhost(origin.port());
    let limits = Limits { connections: 4096, ..Limits::default() };
    let proxy = Proxy::builder(Identity::new("bench", "bench"), rules).limits(limits).build();
    let ours = listening_thread("proxy", |listener| async move { drop(proxy.serve(listener).await) })?;
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
        let stats: Vec<(SocketAddr, String)> =
            neighbours.iter().map(stat_of).chain([(ours, thread_stat("proxy")?)]).collect();
        let tunnels: Vec<_> = ways.iter().copied().filter(|(_, way)| matches!(way, Way::Tunnel(..))).collect();
        // What the proxy itself takes: other work on the machine changes it less than how many there are in a second.
        in_turns(&tunnels, "new_connection_cpu", "us", async |way| {
            let Way::Tunnel(proxy, _) = way else { return Err(io::ErrorKind::Unsupported.into()) };
            let (_, stat) = stats.iter().find(|(at, _)| *at == proxy).ok_or(io::ErrorKind::NotFound)?;
            let (start, before) = (Instant::now(), ran(stat)?);
            let rate = new_connections(way).await?;
            Ok((ran(stat)? - before) * 1e6 / (rate * start.elapsed().as_secs_f64()))
        })
        .await?;
        in_turns(&ways, "kept_alive", "/s", kept_alive).await?;
        in_turns(&ways, "question", "us", latency).await?;
        let tunnels: Vec<_> = ways.iter().copied().filter(|(_, way)| !matches!(way, Way::Forward(..))).collect();
        in_turns(&tunnels, "bulk", "GB/s", bulk).await?;
        let before = resident()?;
        let mut idle = Vec::new();
        for _ in 0..IDLE {
            idle.push(connect(Way::Tunnel(ours, origin)).await?);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        // The origin and the client are in the same process, and counted with it.
        println!("egress_idle_tunnel_bytes {} B", resident()?.saturating_sub(before) / IDLE);
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

/// Somebody at a port of loopback, on a thread and a runtime of its own, as the proxy has it in a supervisor.
fn listening_thread<F>(name: &str, serve: impl FnOnce(TcpListener) -> F + Send + 'static) -> io::Result<SocketAddr>
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let at = listener.local_addr()?;
    listener.set_nonblocking(true)?;
    // The name is for those who look with a profiler.
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(move || -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // In a task, as in a supervisor: waking the thread's first future costs a system call.
        runtime.block_on(async { Ok(tokio::spawn(serve(TcpListener::from_std(listener)?)).await?) })
    })?;
    Ok(at)
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

/// Where the kernel tells of the thread of ours with this name.
fn thread_stat(name: &str) -> io::Result<String> {
    for thread in std::fs::read_dir("/proc/self/task")? {
        let folder = thread?.path();
        if std::fs::read_to_string(folder.join("comm"))?.trim() == name {
            return Ok(folder.join("stat").display().to_string());
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

/// Seconds that a process or thread has run, in hundredths.
fn ran(stat: &str) -> io::Result<f64> {
    let text = std::fs::read_to_string(stat)?;
    let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
    Ok(fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0)
}

fn resident() -> io::Result<usize> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.map(|pages| pages * 4096).ok_or_else(|| io::ErrorKind::InvalidData.into())
}
