//! Measures the proxy against direct connections over loopback: new connections, kept connections, one bulk tunnel, and the
//! memory of idle tunnels. `cargo bench -p ringfence-egress --bench proxy`.

#![allow(clippy::print_stdout, reason = "a benchmark reports on stdout")]

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ringfence_egress::{Identity, Limits, Proxy, Rules};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const AT_ONCE: usize = 16;
const SPAN: Duration = Duration::from_secs(2);
const BULK: usize = 2 * 1024 * 1024 * 1024;
const IDLE: usize = 1000;
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[derive(Clone, Copy)]
enum Way {
    Direct(SocketAddr),
    Tunnel(SocketAddr, SocketAddr),
    Forward(SocketAddr, SocketAddr),
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let origin = start_origin().await?;
    let rules = Rules::none().localhost(origin.port());
    let limits = Limits { connections: 4096, ..Limits::default() };
    let proxy = Proxy::builder(Identity::new("bench", "bench"), rules).limits(limits).build();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let at = listener.local_addr()?;
    drop(tokio::spawn(async move { proxy.serve(listener).await }));
    let ways =
        [("direct", Way::Direct(origin)), ("tunnel", Way::Tunnel(at, origin)), ("forward", Way::Forward(at, origin))];
    for (name, way) in ways {
        println!("egress_{name}_new_connections {:.0} /s", new_connections(way).await?);
        println!("egress_{name}_kept_alive {:.0} /s", kept_alive(way).await?);
    }
    for (name, way) in ways.into_iter().take(2) {
        println!("egress_{name}_bulk {:.2} GB/s", bulk(way).await?);
    }
    let before = resident()?;
    let mut idle = Vec::new();
    for _ in 0..IDLE {
        idle.push(connect(Way::Tunnel(at, origin)).await?);
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    // The origin and the client are in the same process, and counted with it.
    println!("egress_idle_tunnel_bytes {} B", resident()?.saturating_sub(before) / IDLE);
    Ok(())
}

/// Answers every request with two bytes, and a request for `/bulk` with many.
async fn start_origin() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let at = listener.local_addr()?;
    drop(tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            drop(tokio::spawn(answer(stream)));
        }
    }));
    Ok(at)
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
        let mut answer = [0; 39];
        stream.read_exact(&mut answer).await?;
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

fn resident() -> io::Result<usize> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.map(|pages| pages * 4096).ok_or_else(|| io::ErrorKind::InvalidData.into())
}
