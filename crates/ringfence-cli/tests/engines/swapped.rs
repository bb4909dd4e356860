//! F03: a folder and a link of the workspace that change places all the time, while containers are made and what was changed is brought
//! to the host.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ringfence_testkit::canary::{FileCanary, until};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::left_for_the_host::DIRECT_ALONE;
use crate::stage::{SOON, Stage};
use crate::walls::for_each_engine;

const ROUNDS: usize = 4;
const SCRIPT: &str = "for folder in swapped other; do echo x > $folder/new; mkdir -p $folder/deep; echo x > $folder/deep/new; done; echo ran";

/// Somebody who swaps them until this is dropped.
struct Swapper {
    stop: Arc<AtomicBool>,
    swaps: Option<std::thread::JoinHandle<usize>>,
}

impl Swapper {
    fn start(stage: &Stage, outside: &std::path::Path) -> Self {
        stage.write("swapped/file", "inside");
        symlink(outside, stage.work().join("other")).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (work, stopped) = (stage.work(), Arc::clone(&stop));
        let swaps = std::thread::spawn(move || {
            let mut swaps = 0;
            while !stopped.load(Ordering::Relaxed) {
                // One of them may be away for a moment, while what was changed is put in its place.
                let swapped = renameat_with(CWD, work.join("swapped"), CWD, work.join("other"), RenameFlags::EXCHANGE);
                swaps += usize::from(swapped.is_ok());
                std::thread::sleep(Duration::from_micros(200));
            }
            swaps
        });
        Self { stop, swaps: Some(swaps) }
    }

    fn stop(&mut self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.swaps.take().map_or(0, |swaps| swaps.join().unwrap())
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        self.stop();
    }
}

#[test]
fn f03_a_folder_and_a_link_that_are_swapped_while_containers_start_and_are_applied_lead_no_write_outside() {
    for_each_engine(DIRECT_ALONE, |place| {
        let outside = place.outside();
        fs::write(outside.join("file"), "outside").unwrap();
        let canary = FileCanary::set(&outside).unwrap();
        let mut swapper = Swapper::start(&place.stage, &outside);
        let ran = (0..ROUNDS).filter(|_| place.sh(SCRIPT, &[]).text().contains("ran")).count();
        assert!(swapper.stop() > 100, "{}: nothing was raced", place.wall);
        assert_eq!(canary.change().unwrap(), None, "{}", place.wall);
        assert!(ran > 0, "{}: no launch got through, so nothing was raced", place.wall);
        let mut swapper = Swapper::start(place.bare(), &outside);
        let is_reached = || {
            place.bare_sh(SCRIPT, &[]);
            canary.change().unwrap().is_some()
        };
        assert!(until(SOON, is_reached), "the probe proves nothing");
        swapper.stop();
    });
}
