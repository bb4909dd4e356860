//! Moves bytes between the program's pipes and us, in constant memory.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, watch};

use crate::capture::{Capture, Captured};
use crate::event::{Event, Stream};

const CHUNK: usize = 64 * 1024;
/// A pipe that is still open when nothing of the program is left is held by somebody who is not ours.
const QUIET: Duration = Duration::from_millis(50);
/// In a session such a pipe may be held by what a run left behind, and be written to for ever: what was in it when the
/// program ended is read, and not waited for longer than this in all.
const WAITED_AFTER_THE_END: Duration = Duration::from_millis(200);
/// As much as a pipe holds at most, unless the host's root says otherwise.
const MOST_AFTER_THE_END: usize = 1024 * 1024;

/// Reads one stream to its end, keeps what the cap allows, and passes on what can be shown. `gone` turns true when
/// nothing of the program is left.
pub(crate) async fn read_stream(
    stream: Stream,
    mut pipe: pipe::Receiver,
    most: u64,
    events: mpsc::Sender<Event>,
    mut gone: watch::Receiver<bool>,
) -> Captured {
    let mut capture = Capture::new(most);
    // Not written before something comes: each page of it would be a fault.
    let mut buffer = Vec::with_capacity(CHUNK);
    let (mut waited, mut came_after) = (Duration::ZERO, 0usize);
    loop {
        buffer.clear();
        let is_gone = *gone.borrow_and_update();
        let read = if is_gone {
            let begin = Instant::now();
            let read = tokio::time::timeout(QUIET, pipe.read_buf(&mut buffer)).await;
            waited += begin.elapsed();
            match read {
                Ok(read) if waited < WAITED_AFTER_THE_END && came_after < MOST_AFTER_THE_END => {
                    came_after += read.as_ref().map_or(0, |read| *read);
                    read
                }
                // Quiet, or more than the program can have left.
                Ok(_) | Err(_) => break,
            }
        } else {
            tokio::select! {
                read = pipe.read_buf(&mut buffer) => read,
                // Either it is gone now, or its sender is: both end the waiting.
                _ = gone.changed() => continue,
            }
        };
        // A pipe that cannot be read has ended for us; what came before is kept.
        let Ok(read @ 1..) = read else { break };
        let to_show = capture.push(&buffer[..read]);
        if to_show > 0 {
            show(&events, Event::Output { stream, bytes: buffer[..to_show].to_vec() }).await;
        }
    }
    let captured = capture.finish();
    if captured.omitted > 0 {
        show(&events, Event::Omitted { stream, bytes: captured.omitted }).await;
    }
    if !captured.tail.is_empty() {
        show(&events, Event::Output { stream, bytes: captured.tail.clone() }).await;
    }
    captured
}

/// Passes on an event. Nobody listening is no reason to stop a run.
pub(crate) async fn show(events: &mpsc::Sender<Event>, event: Event) {
    events.send(event).await.ok();
}

/// What a person types to end a program's input.
const END_OF_INPUT: &[u8] = &[4];

/// Writes `bytes` to the program, then what is typed into its terminal, and closes its input. A program that does not
/// read them is none of our business.
pub(crate) async fn write_stdin(pipe: Option<pipe::Sender>, bytes: &[u8], typed: Option<pipe::Receiver>) {
    let Some(mut pipe) = pipe else { return };
    if pipe.write_all(bytes).await.is_err() {
        return;
    }
    let Some(mut typed) = typed else { return };
    let mut buffer = vec![0u8; CHUNK];
    while let Ok(read @ 1..) = typed.read(&mut buffer).await {
        if pipe.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
    // A terminal cannot be closed from one side only.
    pipe.write_all(END_OF_INPUT).await.ok();
}
