//! Guests that say what is not theirs to say.

use ringfence_guest::far::MOST_NODES;
use ringfence_guest::seal::FrameKey;

use super::*;

const NUMBER: ProgramNumber = 1;

fn output(program: ProgramNumber, stream: Stream, size: usize) -> FarReport {
    FarReport::Output { program, stream, bytes: vec![b'x'; size] }
}

fn report(report: Report) -> FarReport {
    FarReport::Report(report)
}

/// Has a guest with one program that runs, whose input is open, say `said`; is it still served afterwards?
async fn is_believed(said: Vec<FarReport>) -> bool {
    let (held, mut fake) = connect(Some(Box::new(Paper::new())));
    let (say, told) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        fake.prove().await;
        let order = fake.order().await.unwrap();
        fake.obey(order).await;
        told.await.unwrap();
        for report in said {
            fake.tell(report).await;
        }
        while let Some(order) = fake.order().await {
            match order {
                FarOrder::Taken { .. } | FarOrder::Input { .. } | FarOrder::InputEnd { .. } => {}
                FarOrder::Order(Order::Measure) => {
                    fake.tell(report(Report::Measured { tasks: 7, resident_bytes: 77 })).await;
                }
                _ => return,
            }
        }
    });
    let (held, guest) = held.proven().await;
    let (end, writer) = input();
    let request = Request { stdin: crate::request::Stdin::Pipe(end), ..Request::argv(["sleep"]) };
    let mut sandbox = run(&guest, request).await;
    say.send(()).unwrap();
    // Twice: what was said may have been taken for the first answer.
    if guest.measure().await.is_ok() && guest.measure().await.is_ok() {
        assert_eq!(held.kills(), 0, "it is believed, and was killed");
        drop(writer);
        return true;
    }
    held.is_given_up().await;
    tokio::time::timeout(SOON, guest.gone()).await.expect("it is not said to be gone");
    // Whoever waits for the program is told, and its streams end.
    let waits = async {
        while let Ok(Some(report)) = sandbox.next_report().await {
            if matches!(report, ringfence_linux::Report::Gone { .. }) {
                break;
            }
        }
        let mut rest = Vec::new();
        sandbox.stdout.take().unwrap().read_to_end(&mut rest).await.unwrap();
    };
    tokio::time::timeout(SOON, waits).await.expect("somebody waits for a guest that was given up");
    assert!(held.link.find(vec!["a".into()]).await.is_err(), "a guest that was given up is asked again");
    assert_eq!(held.kills(), 1, "once is enough");
    false
}

#[tokio::test]
async fn what_is_said_in_turn_is_believed() {
    assert!(is_believed(vec![]).await);
    assert!(is_believed(vec![output(NUMBER, Stream::Output, PIECE)]).await);
    assert!(is_believed(vec![output(NUMBER, Stream::Error, 1)]).await);
    // The pipe takes less than all of it, so this is just what may be on its way.
    assert!(is_believed(vec![output(NUMBER, Stream::Output, PIECE); WINDOW / PIECE]).await);
    assert!(is_believed(vec![FarReport::OutputEnd { program: NUMBER, stream: Stream::Error }]).await);
    assert!(is_believed(vec![FarReport::InputClosed { program: NUMBER }]).await);
    assert!(is_believed(vec![output(NUMBER, Stream::Output, 1), ended(NUMBER, 0)]).await);
}

#[tokio::test]
async fn what_is_said_of_a_program_that_there_is_not_gives_the_guest_up() {
    for said in [
        output(7, Stream::Output, 1),
        FarReport::OutputEnd { program: 7, stream: Stream::Output },
        FarReport::InputTaken { program: 7, bytes: 1 },
        FarReport::InputClosed { program: 7 },
        FarReport::InputClosed { program: 0 },
        ended(7, 0),
        report(Report::Started { program: 7, terminal: false }),
        report(Report::Failed { program: 7, why: Why::Said("no".to_owned()) }),
    ] {
        assert!(!is_believed(vec![said.clone()]).await, "{said:?}");
    }
}

#[tokio::test]
async fn more_than_may_be_on_its_way_gives_the_guest_up() {
    // Twice, because a pipe takes some of it.
    assert!(!is_believed(vec![output(NUMBER, Stream::Output, PIECE); 2 * WINDOW / PIECE]).await);
    assert!(!is_believed(vec![output(NUMBER, Stream::Output, PIECE + 1)]).await);
    assert!(!is_believed(vec![output(NUMBER, Stream::Output, 0)]).await);
    assert!(!is_believed(vec![FarReport::InputTaken { program: NUMBER, bytes: 1 }]).await, "nothing was sent");
    assert!(!is_believed(vec![FarReport::InputTaken { program: NUMBER, bytes: 0 }]).await);
}

#[tokio::test]
async fn what_nobody_asked_for_gives_the_guest_up() {
    let proof = Proof { name: "net.none".to_owned(), found: String::new() };
    for said in [
        FarReport::Found(vec![true]),
        FarReport::Filled(Ok(())),
        FarReport::Filled(Err("no".to_owned())),
        FarReport::Differs(vec![file("a", b"a")]),
        FarReport::Collected(Ok(())),
        report(Report::Proven(vec![proof])),
        report(Report::Layer { comes: true }),
        report(Report::Workspace { comes: false }),
        report(Report::Started { program: NUMBER, terminal: false }),
    ] {
        assert!(!is_believed(vec![said.clone()]).await, "{said:?}");
    }
    let measured = report(Report::Measured { tasks: 0, resident_bytes: 0 });
    assert!(!is_believed(vec![measured.clone(), measured]).await, "two answers to one question");
}

#[tokio::test]
async fn a_wall_is_proven_once_more_and_one_that_does_not_stand_any_more_runs_nothing() {
    let (held, guest) = honest().await;
    let (names, _): (Vec<_>, Vec<_>) = held.link.proven_again().await.unwrap().into_iter().unzip();
    assert_eq!(names, ["net.none"]);
    let sandbox = run(&guest, Request::argv(["cat"])).await;
    // Who runs there could not be told from who proves.
    held.link.proven_again().await.unwrap_err();
    drop(sandbox);

    for said in [
        report(Report::Failed { program: 0, why: Why::Said("no".to_owned()) }),
        report(Report::Measured { tasks: 0, resident_bytes: 0 }),
        FarReport::Found(vec![true]),
    ] {
        let (held, mut fake) = connect(None);
        let answer = said.clone();
        tokio::spawn(async move {
            fake.prove().await;
            assert!(matches!(fake.order().await, Some(FarOrder::Prove)));
            fake.tell(answer).await;
            while fake.order().await.is_some() {}
        });
        let (held, guest) = held.proven().await;
        held.link.proven_again().await.unwrap_err();
        assert!(held.link.find(vec!["a".into()]).await.is_err(), "{said:?}: it is asked again");
        drop(guest);
    }
}

#[tokio::test]
async fn what_comes_after_an_end_gives_the_guest_up() {
    let end = FarReport::OutputEnd { program: NUMBER, stream: Stream::Output };
    assert!(!is_believed(vec![end.clone(), output(NUMBER, Stream::Output, 1)]).await);
    assert!(!is_believed(vec![end.clone(), end]).await);
    assert!(!is_believed(vec![ended(NUMBER, 0), ended(NUMBER, 0)]).await);
}

#[tokio::test]
async fn bytes_that_are_no_frame_and_frames_that_are_too_long_give_the_guest_up() {
    let good = encode(&output(NUMBER, Stream::Output, 1), MOST_FAR_REPORT).unwrap();
    let mut meaningless = good.clone();
    meaningless[8] = 0xff;
    type Change = fn(&mut Vec<u8>);
    let as_it_is: Change = |_| {};
    let letters: Change = |frame| frame[0] = b'X';
    let long: Change =
        |frame| frame[4..8].copy_from_slice(&u32::try_from(MOST_FAR_REPORT + TAG + 1).unwrap().to_le_bytes());
    let other: Change = |frame| *frame = vec![7; 100_000];
    for (frame, change, believed) in [
        (&good, as_it_is, true),
        (&good, letters, false),
        (&good, long, false),
        (&meaningless, as_it_is, false),
        (&good, other, false),
    ] {
        let frame = frame.clone();
        let (held, mut fake) = connect(None);
        tokio::spawn(async move {
            fake.prove().await;
            let order = fake.order().await.unwrap();
            fake.obey(order).await;
            let mut frame = fake.sealed(frame);
            change(&mut frame);
            fake.writer.write_all(&frame).await.ok();
            while let Some(order) = fake.order().await {
                fake.obey(order).await;
            }
        });
        let (held, guest) = held.proven().await;
        let _sandbox = run(&guest, Request::argv(["sleep"])).await;
        assert_eq!(guest.measure().await.is_ok(), believed);
        assert_eq!(held.kills(), usize::from(!believed));
    }
}

#[tokio::test]
async fn reports_that_are_forged_said_again_missing_or_in_another_order_give_the_guest_up() {
    type Change = fn([Vec<u8>; 3]) -> Vec<u8>;
    let cases: [(&str, Change, bool); 6] = [
        ("in their order", |frames| frames.concat(), true),
        ("said again", |[first, second, _]| [first, second.clone(), second].concat(), false),
        ("missing", |[first, _, third]| [first, third].concat(), false),
        ("in another order", |[first, second, third]| [second, first, third].concat(), false),
        ("no seal", |_| encode(&output(NUMBER, Stream::Output, 1), MOST_FAR_REPORT).unwrap(), false),
        (
            "forged",
            |_| {
                let mut frame = encode(&output(NUMBER, Stream::Output, 1), MOST_FAR_REPORT).unwrap();
                Seal::new(FrameKey::known([1; 32]), Direction::Reports).close(&mut frame).unwrap();
                frame
            },
            false,
        ),
    ];
    for (name, change, believed) in cases {
        let (held, mut fake) = connect(None);
        tokio::spawn(async move {
            fake.prove().await;
            let order = fake.order().await.unwrap();
            fake.obey(order).await;
            let mut next = || fake.sealed(encode(&output(NUMBER, Stream::Output, 1), MOST_FAR_REPORT).unwrap());
            let frames = [next(), next(), next()];
            fake.writer.write_all(&change(frames)).await.ok();
            while let Some(order) = fake.order().await {
                fake.obey(order).await;
            }
        });
        let (held, guest) = held.proven().await;
        let _sandbox = run(&guest, Request::argv(["sleep"])).await;
        assert_eq!(guest.measure().await.is_ok(), believed, "{name}");
        assert_eq!(held.kills(), usize::from(!believed), "{name}");
    }
}

#[tokio::test]
async fn too_many_and_too_large_nodes_give_the_guest_up() {
    let path = "p".repeat(5000);
    let cases = [
        (vec![file("a", b"a"); MOST_NODES], true),
        (vec![file("a", b"a"); MOST_NODES + 1], false),
        (vec![file("a", &[0; PIECE])], true),
        (vec![file("a", &[0; PIECE + 1])], false),
        (vec![file(&path, b"")], false),
        (vec![], false),
    ];
    for (nodes, believed) in cases {
        let (held, mut fake) = connect(None);
        let count = nodes.len();
        tokio::spawn(async move {
            fake.prove().await;
            assert!(matches!(fake.order().await, Some(FarOrder::Collect)));
            fake.tell(FarReport::Differs(nodes)).await;
            fake.tell(FarReport::Collected(Ok(()))).await;
            fake.order().await;
        });
        let (held, _guest) = held.proven().await;
        let layer = tokio::time::timeout(SOON, held.link.collect(Box::new(Paper::new()))).await.unwrap();
        assert_eq!(layer.is_ok(), believed, "{count} nodes: {layer:?}");
        assert_eq!(held.kills(), usize::from(!believed));
    }
}

#[tokio::test]
async fn an_answer_to_another_question_gives_the_guest_up() {
    for (found, believed) in [(vec![true, false], true), (vec![true], false), (vec![true; 3], false)] {
        let (held, mut fake) = connect(None);
        tokio::spawn(async move {
            fake.prove().await;
            fake.order().await;
            fake.tell(FarReport::Found(found)).await;
            fake.order().await;
        });
        let (held, _guest) = held.proven().await;
        let answer = tokio::time::timeout(SOON, held.link.find(vec!["a".into(), "b".into()])).await.unwrap();
        assert_eq!(answer.is_ok(), believed);
        assert_eq!(held.kills(), usize::from(!believed));
    }
}

#[tokio::test]
async fn a_workspace_is_filled_when_all_was_sent_and_not_before() {
    for (early, believed) in [(None, Ok(())), (Some(Ok(())), Err(1)), (Some(Err("full".to_owned())), Err(0))] {
        let (held, mut fake) = connect(None);
        tokio::spawn(async move {
            fake.prove().await;
            fake.order().await;
            if let Some(early) = early {
                fake.tell(FarReport::Filled(early)).await;
            }
            while let Some(order) = fake.order().await {
                fake.obey(order).await;
            }
        });
        let (held, _guest) = held.proven().await;
        // Far more than can be on its way before the guest has answered.
        let nodes = (0..1000).map(|number: u32| Ok(file(&number.to_string(), &[0; PIECE])));
        let filled = held.link.fill(futures_util::stream::iter(nodes)).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(filled.map_err(|_| held.kills()), believed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_never_begins_is_killed_and_nothing_was_started() {
    let (held, mut fake) = connect(None);
    tokio::spawn(async move { while fake.order().await.is_some() {} });
    assert!(matches!(held.link.proven(begin()).await, Err(StartError::Io { .. })));
    held.is_given_up().await;
}

#[tokio::test]
async fn a_wall_that_could_not_be_raised_is_an_error_in_the_guests_words() {
    let (held, mut fake) = connect(None);
    tokio::spawn(async move {
        fake.order().await;
        let why = Why::Said("the filter was refused".to_owned());
        fake.tell(report(Report::Failed { program: 0, why })).await;
        fake.order().await;
    });
    let error = held.link.proven(begin()).await.unwrap_err();
    assert!(matches!(error, StartError::Wall(why) if why.0 == "the filter was refused"));
}

#[tokio::test]
async fn a_guest_that_speaks_before_it_was_asked_is_given_up() {
    let (held, mut fake) = connect(None);
    fake.tell(report(Report::Proven(Vec::new()))).await;
    held.is_given_up().await;
    assert!(held.link.proven(begin()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_host_is_heard_of_in_time_and_a_guest_that_does_not_read_is_killed() {
    let (held, mut fake) = connect(None);
    tokio::join!(async { held.link.proven(begin()).await.unwrap() }, fake.prove());
    let mut header = [0u8; HEADER];
    let silence = Duration::from_secs(ringfence_guest::far::SILENCE_SECONDS);
    for _ in 0..3 {
        tokio::time::timeout(silence / 2, fake.reader.read_exact(&mut header)).await.expect("silence").unwrap();
        let mut body = vec![0; body_length(header, MOST_ORDER).unwrap()];
        fake.reader.read_exact(&mut body).await.unwrap();
        let opened = fake.seals.as_mut().unwrap().1.open(&body).unwrap();
        assert!(matches!(decode(opened).unwrap(), FarOrder::StillHere));
    }
    assert_eq!(held.kills(), 0, "the twin: one that reads");
    // Now it does not read: more than the stream holds is on its way.
    let nodes = (0..100).map(|number: u32| Ok(file(&number.to_string(), &[0; PIECE])));
    assert!(held.link.fill(futures_util::stream::iter(nodes)).await.is_err());
    held.is_given_up().await;
}

#[tokio::test]
async fn orders_that_nobody_reads_are_bounded() {
    let (held, mut fake) = connect(None);
    tokio::join!(async { held.link.proven(begin()).await.unwrap() }, fake.prove());
    let mut given = 0;
    while held.link.order(Order::Signal { program: 1, signal: 1 }).is_ok() {
        given += 1;
        assert!(given < 100_000, "as many as anybody likes");
    }
    assert!(given >= 1000, "the twin: some may wait");
    held.is_given_up().await;
}

#[tokio::test]
async fn a_guest_that_waits_is_not_over_until_it_speaks_or_ends() {
    let (held, mut fake) = connect(None);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!held.link.is_over(), "one that says nothing waits");
    fake.tell(gone(Layer::Unchanged)).await;
    held.is_given_up().await;
    assert!(held.link.is_over(), "nobody asked it anything");
    assert!(held.link.proven(begin()).await.is_err());

    let (held, fake) = connect(None);
    drop(fake);
    held.is_given_up().await;
    assert!(held.link.is_over());
}

#[tokio::test]
async fn what_takes_the_changes_is_named_before_the_wall_is_raised_and_never_after() {
    let (held, fake) = connect(None);
    tokio::spawn(fake.live());
    assert!(!held.link.keeps_workspace());
    held.link.keep(Box::new(Paper::new())).unwrap();
    assert!(held.link.keeps_workspace());
    let (held, _guest) = held.proven().await;
    assert!(held.link.keep(Box::new(Paper::new())).is_err());

    let (held, _guest) = honest().await;
    assert!(held.link.keep(Box::new(Paper::new())).is_err());
    assert!(!held.link.keeps_workspace(), "one that was begun without it stays so");
}
