//! What it costs to fill the workspace of a far guest with 5,000 files of 1 KB, over the wire's encoding, and to tell what
//! differs in it: nothing, and one file.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints its figures and stops at the first failure"
)]

use std::time::Instant;

use ringfence_guest::far::{FarOrder, FarReport, MOST_FAR_REPORT, Node, What};
use ringfence_guest::nodes::Batch;
use ringfence_guest::protocol::{HEADER, decode, encode};
use ringfence_guest::workspace::Workspace;

const FILES: usize = 5_000;
const FOLDERS: usize = 50;
const ROUNDS: usize = 10;

fn main() {
    let mut batch = Batch::default();
    let mut batches = Vec::new();
    for number in 0..FOLDERS {
        let what = What::Folder { mode: 0o755 };
        batches.extend(batch.push(Node { path: number.to_string().into(), what }));
    }
    for number in 0..FILES {
        let bytes = format!("{number:08}").repeat(128).into_bytes();
        let path = format!("{}/{number}", number % FOLDERS).into();
        batches.extend(batch.push(Node { path, what: What::File { mode: 0o644, modified: (1, 0), bytes } }));
    }
    batches.extend(batch.take());
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        let home = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut workspace = Workspace::new(home.path().as_os_str()).unwrap();
        let begin = Instant::now();
        for nodes in &batches {
            let frame = encode(&FarOrder::Make(nodes.clone()), MOST_FAR_REPORT).unwrap();
            let FarOrder::Make(nodes) = decode(&frame[HEADER..]).unwrap() else { return };
            workspace.make(nodes).unwrap();
        }
        workspace.made().unwrap();
        times[0].push(begin.elapsed());
        for (which, expected) in [(1, 0), (2, 1)] {
            let mut told = 0;
            let begin = Instant::now();
            let each = &mut |nodes: Vec<Node>| {
                told += nodes.len();
                encode(&FarReport::Differs(nodes), MOST_FAR_REPORT).map(drop).map_err(std::io::Error::other)
            };
            workspace.collect(each).unwrap();
            times[which].push(begin.elapsed());
            assert_eq!(told, expected);
            std::fs::write(home.path().join("7/7"), "changed").unwrap();
        }
    }
    for (name, times) in ["far_fill_5000", "far_collect_nothing", "far_collect_one"].iter().zip(&mut times) {
        times.sort_unstable();
        println!("{name} {:.3} ms", times[ROUNDS / 2].as_secs_f64() * 1000.0);
    }
}
