//! A program that is alone in a far place, watched as every run is.

use std::time::Instant;

use ringfence_linux::cgroup::CgroupUsage;

use super::*;
use crate::BoxFuture;
use crate::backend::counters::{Counters, Told};
use crate::monitor::{End, Reason, Watched, watch};
use crate::run::Run;

/// Watches the program of `request`, whose guest does `at_the_end` when it is told to end.
async fn check<F>(
    request: Request,
    policy: &str,
    bringing: Option<Box<dyn Bringing>>,
    at_the_end: impl FnOnce(Fake) -> F + Send + 'static,
) -> (Watched, Held)
where
    F: Future<Output = ()> + Send + 'static,
{
    let (held, mut fake) = connect(bringing);
    tokio::spawn(async move {
        fake.prove().await;
        while let Some(order) = fake.order().await {
            if matches!(order, FarOrder::Order(Order::End)) {
                return at_the_end(fake).await;
            }
            fake.obey(order).await;
        }
    });
    let (held, guest) = held.proven().await;
    let plan = plan(request, policy).await;
    let place = Arc::new(());
    let mut sandbox = alone(&plan, &guest, start(&plan), Box::new(Arc::clone(&place))).unwrap();
    drop(guest);
    sandbox.release().await.unwrap();
    let (events, mut heard) = tokio::sync::mpsc::channel(16);
    tokio::spawn(async move { while heard.recv().await.is_some() {} });
    let (run, caller) = Run::new(RunId::generate().unwrap(), tokio::sync::mpsc::channel(1).1);
    let watched = tokio::time::timeout(SOON, watch(sandbox, &plan, events, caller, Instant::now())).await;
    drop(run);
    assert_eq!(Arc::strong_count(&place), 1, "the place is removed with the sandbox");
    (watched.expect("the run does not end"), held)
}

async fn end_all(fake: &mut Fake) {
    for program in fake.running.keys().copied().collect::<Vec<_>>() {
        fake.end(program, 9).await;
    }
}

#[tokio::test]
async fn a_program_ends_its_place_and_what_it_changed_becomes_the_layer() {
    let paper = Paper::new();
    let brought = Arc::clone(&paper.brought);
    let (watched, _held) = check(Request::argv(["big"]), "", Some(Box::new(paper)), |mut fake| async move {
        for part in 0..100 {
            fake.tell(FarReport::Differs(vec![file(&format!("{part}"), &[1; PIECE])])).await;
        }
        fake.tell(FarReport::Collected(Ok(()))).await;
        fake.tell(gone(Layer::Changed)).await;
    })
    .await;
    assert_eq!(watched.end, End::Reaped(0));
    assert!(watched.layer.unwrap().is_some() && watched.layer_changed);
    assert_eq!(brought.lock().unwrap().len(), 100);
    let kept = watched.stdout.head.len() + watched.stdout.tail.len();
    assert_eq!(kept as u64 + watched.stdout.omitted, big().len() as u64, "all output was seen");
    assert!(watched.violations.is_empty(), "{:?}", watched.violations);
}

#[tokio::test]
async fn a_program_that_changed_nothing_leaves_no_layer() {
    let (watched, _held) = check(Request::argv(["cat"]), "", Some(Box::new(Paper::new())), |mut fake| async move {
        fake.tell(FarReport::Collected(Ok(()))).await;
        fake.tell(gone(Layer::Unchanged)).await;
    })
    .await;
    assert!(watched.layer.unwrap().is_none() && !watched.layer_changed);
}

#[tokio::test]
async fn a_layer_that_was_not_told_whole_is_an_error_and_never_nothing() {
    let not_all: [(&str, Vec<FarReport>); 4] = [
        ("without a word", vec![gone(Layer::Changed)]),
        ("without an end", vec![FarReport::Differs(vec![file("a", b"a")]), gone(Layer::Changed)]),
        ("in vain", vec![FarReport::Collected(Err("it could not be read".to_owned())), gone(Layer::Changed)]),
        ("without a last word", vec![FarReport::Differs(vec![file("a", b"a")]), FarReport::Collected(Ok(()))]),
    ];
    for (how, said) in not_all {
        let (watched, held) = check(Request::argv(["cat"]), "", Some(Box::new(Paper::new())), |mut fake| async move {
            for report in said {
                fake.tell(report).await;
            }
        })
        .await;
        assert!(watched.layer.is_err(), "{how}");
        assert_eq!(watched.end, End::Reaped(0), "{how}");
        held.is_given_up().await;
    }
}

#[tokio::test]
async fn a_run_that_is_over_its_time_is_killed_and_keeps_what_it_changed() {
    let (watched, _held) = check(
        Request::argv(["sleep"]),
        "proc: { timeout: 300ms }",
        Some(Box::new(Paper::new())),
        |mut fake| async move {
            end_all(&mut fake).await;
            fake.tell(FarReport::Differs(vec![file("a", b"a")])).await;
            fake.tell(FarReport::Collected(Ok(()))).await;
            fake.tell(gone(Layer::Changed)).await;
        },
    )
    .await;
    assert_eq!(watched.ended_by, Some(Reason::TimeLimit));
    assert!(watched.layer.unwrap().is_some());
}

#[tokio::test]
async fn a_guest_that_tells_slowly_is_waited_for_and_one_that_says_nothing_is_killed() {
    let (watched, _held) = check(Request::argv(["cat"]), "", Some(Box::new(Paper::new())), |mut fake| async move {
        for part in 0..3 {
            tokio::time::sleep(Duration::from_millis(1200)).await;
            fake.tell(FarReport::Differs(vec![file(&format!("{part}"), b"a")])).await;
        }
        fake.tell(FarReport::Collected(Ok(()))).await;
        fake.tell(gone(Layer::Changed)).await;
    })
    .await;
    assert!(watched.layer.unwrap().is_some(), "longer than a kill may take");
    let (watched, held) = check(Request::argv(["cat"]), "", None, |fake| async move {
        let _open = fake;
        std::future::pending::<()>().await;
    })
    .await;
    assert!(watched.layer.unwrap().is_none());
    held.is_given_up().await;
}

#[tokio::test]
async fn a_guest_that_dies_while_its_program_runs_ends_the_run() {
    let (held, mut fake) = connect(Some(Box::new(Paper::new())));
    tokio::spawn(async move {
        fake.prove().await;
        let order = fake.order().await.unwrap();
        fake.obey(order).await;
    });
    let (held, guest) = held.proven().await;
    let (mut sandbox, plan, place) = lone(&guest, Request::argv(["sleep"])).await;
    drop(guest);
    sandbox.release().await.unwrap();
    let (_run, caller) = Run::new(RunId::generate().unwrap(), tokio::sync::mpsc::channel(1).1);
    let events = tokio::sync::mpsc::channel(16).0;
    let watched = tokio::time::timeout(SOON, watch(sandbox, &plan, events, caller, Instant::now())).await.unwrap();
    assert_eq!(watched.end, End::Lost);
    assert!(watched.layer.is_err());
    held.is_given_up().await;
    assert_eq!(Arc::strong_count(&place), 1);
}

#[tokio::test]
async fn a_sandbox_that_is_dropped_kills_its_place_before_it_is_removed() {
    let (held, fake) = connect(None);
    tokio::spawn(fake.live());
    let (Held { link, kills }, guest) = held.proven().await;
    drop(link);
    let (mut sandbox, _plan, place) = lone(&guest, Request::argv(["sleep"])).await;
    drop(guest);
    sandbox.release().await.unwrap();
    assert_eq!((kills.load(Ordering::SeqCst), Arc::strong_count(&place)), (0, 2), "the twin: while it is held");
    drop(sandbox);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!((kills.load(Ordering::SeqCst), Arc::strong_count(&place)), (1, 1));
}

/// Somebody who counted so many processes that were killed for memory.
#[derive(Debug)]
struct Counted(u64);

impl Told for Counted {
    fn usage(&self) -> BoxFuture<'_, Option<CgroupUsage>> {
        let oom_kills = self.0;
        let usage = CgroupUsage { memory_peak: Some(99), oom_kills, pids_limit_hits: 0, processes_now: 0 };
        Box::pin(async move { Some(usage) })
    }
}

#[tokio::test]
async fn what_somebody_else_counted_says_why_a_program_ended() {
    for (kills, reason) in [(1, Some(Reason::Memory)), (0, None)] {
        let (_held, guest) = honest().await;
        let (mut sandbox, plan, _place) = lone(&guest, Request::argv(["sleep"])).await;
        sandbox.counters = Some(Counters::Told(Arc::new(Counted(kills))));
        sandbox.release().await.unwrap();
        // As the kernel would.
        sandbox.signal(rustix::process::Signal::KILL).unwrap();
        let (_run, caller) = Run::new(RunId::generate().unwrap(), tokio::sync::mpsc::channel(1).1);
        let events = tokio::sync::mpsc::channel(16).0;
        let watched = watch(sandbox, &plan, events, caller, Instant::now()).await;
        assert_eq!(watched.ended_by, reason);
        assert_eq!(watched.end, End::Reaped(9));
        assert_eq!(watched.usage.memory_peak_bytes, 99);
    }
}
