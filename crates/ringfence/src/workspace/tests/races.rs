use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::RenameFlags;

use super::*;

const ROUNDS: usize = 1000;
/// On a busy machine whoever swaps may not get a turn for long: then there are more rounds, for so long.
const MOST: Duration = Duration::from_secs(60);

/// Swaps `one` and `other` until it is told to stop.
fn swap(one: &Path, other: &Path, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
    }
}

/// A folder `d` and a link `l` to outside change places all the time while `act` is done again and again, and until it says that the
/// race has been seen.
fn while_swapped(bench: &Bench, mut act: impl FnMut(usize) -> bool) {
    let begun = Instant::now();
    let stop = AtomicBool::new(false);
    let (folder, link) = (bench.at("d"), bench.at("l"));
    std::thread::scope(|scope| {
        scope.spawn(|| swap(&folder, &link, &stop));
        let acted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut round = 0;
            while !act(round) && begun.elapsed() < MOST || round < ROUNDS {
                round += 1;
            }
        }));
        stop.store(true, Ordering::Relaxed);
        if let Err(panic) = acted {
            std::panic::resume_unwind(panic);
        }
    });
}

/// A workspace whose folder `d`, with files in it, and link `l` can be swapped.
fn swapped() -> Bench {
    let mut bench = Bench::new();
    bench.write("d/canary", "old");
    bench.write("d/removed", "old");
    bench.link("l", bench.outside());
    bench.changes_file("d/canary", "new");
    bench.changes_file("d/added", "new");
    bench.removes("d/removed");
    bench.changes_folder("d/made", 0o755);
    bench.changes_file("d/made/file", "new");
    bench
}

#[test]
fn f03_measured_a_folder_that_is_swapped_for_a_link_while_changes_are_applied_and_taken_back_is_never_followed() {
    let bench = swapped();
    bench.kept().keep(&bench.set()).unwrap();
    let mut done = 0;
    while_swapped(&bench, |round| {
        let site = bench.site();
        let applied = if round % 2 == 0 {
            apply::apply(&site, &bench.ledger, &bench.kept(), &bench.set(), bench.propose()).unwrap()
        } else {
            let Ok(next) = undo::next(&site) else { return done > 0 };
            let proposal = undo::propose(&next, site.host(), Since::TakeBack);
            undo::undo(&site, &bench.state, &bench.ledger, &next, Since::TakeBack, proposal).unwrap()
        };
        done += applied.done.len();
        done > 0
    });
    bench.nothing_happened_outside();
    bench.site();
    assert_eq!(bench.asides(), Vec::<PathBuf>::new());
    assert!(done > 0, "the race was never won, and nothing was tried");
}

#[test]
fn f03_the_twin_a_writer_that_follows_links_reaches_the_canary() {
    let bench = swapped();
    let mut hit = false;
    while_swapped(&bench, |_| {
        fs::write(bench.at("d/canary"), "overwritten").unwrap();
        hit |= fs::read(bench.outside().join("canary")).unwrap() == b"overwritten";
        hit
    });
    assert!(hit, "the race is too slow to show anything");
}

#[test]
fn a_file_that_the_host_writes_all_the_time_is_never_lost() {
    let mut bench = Bench::new();
    bench.write("a", "0");
    bench.changes_file("a", "program");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // As editors do: a new file with the next number is put in the place of the old one.
        let writer = scope.spawn(|| {
            let mut number = 0u64;
            let mut lost = 0;
            while !stop.load(Ordering::Relaxed) {
                number += 1;
                let text = number.to_string();
                fs::write(bench.at("new"), &text).unwrap();
                fs::rename(bench.at("new"), bench.at("a")).unwrap();
                std::thread::sleep(Duration::from_micros(number % 700));
                // What was written last is there, or on its way back, unless the program's was put there after it was
                // saved.
                let is_there = || {
                    let paths = fs::read_dir(bench.work()).unwrap().map(|entry| entry.unwrap().path());
                    paths.filter_map(|path| fs::read(path).ok()).any(|bytes| bytes == text.as_bytes())
                };
                let is_saved = || bench.read("a").as_deref() == Some("program");
                lost += u32::from(!(0..100).any(|_| is_there() || is_saved()));
            }
            lost
        });
        for _ in 0..ROUNDS {
            let site = bench.site();
            // Whatever is there now is what the program saw.
            let mut set = bench.set();
            set.changes[0].before = bench.before(Path::new("a"));
            let selection = Selection::all(&set);
            let proposal = propose_free(&set, &bench.kept(), site.host(), &selection);
            bench.kept().keep(&set).unwrap();
            apply::apply(&site, &bench.ledger, &bench.kept(), &set, proposal).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(writer.join().unwrap(), 0, "writes were lost");
    });
    let aside = bench.asides().into_iter().map(|path| fs::read_to_string(path).unwrap());
    assert_eq!(aside.filter(|text| text == "program").count(), 0, "something of ours lies aside");
}

#[test]
fn f03_measured_a_folder_that_is_swapped_for_a_link_while_a_difference_is_read_is_never_followed() {
    let bench = swapped();
    // The stamp of the file outside: only the way there keeps it from being read.
    let outside = bench.outside().join("canary");
    let Before::Was(Was { stamp, .. }) = bench.before(Path::new("d/canary")) else { panic!("nothing is there") };
    let found = rustix::fs::stat(&outside).unwrap();
    let elsewhere = beneath::stamp_of(&found);
    let files = HostFiles::open(&bench.work(), bench.workspace_is()).unwrap();
    let (mut read, mut naive) = (0, 0);
    while_swapped(&bench, |_| {
        assert_eq!(files.read(&place("d/canary"), &elsewhere, 100), None, "something outside was read");
        read += usize::from(files.read(&place("d/canary"), &stamp, 100).is_some());
        naive += usize::from(fs::read(bench.at("d/canary")).is_ok_and(|bytes| bytes == b"alive"));
        read > 0 && naive > 0
    });
    assert!(read > 0, "nothing was ever read");
    assert!(naive > 0, "a reader that follows links would not have reached it");
}
