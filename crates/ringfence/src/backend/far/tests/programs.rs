//! What programs of an honest guest write and read.

use ringfence_linux::Report;
use tokio::time::timeout;

use super::*;
use crate::request::Stdin;

async fn read_all(pipe: &mut tokio::net::unix::pipe::Receiver) -> Vec<u8> {
    let mut all = Vec::new();
    timeout(SOON, pipe.read_to_end(&mut all)).await.expect("the output does not end").unwrap();
    all
}

async fn next(sandbox: &Sandbox) -> Report {
    timeout(SOON, sandbox.next_report()).await.expect("no report").unwrap().expect("the guest is gone")
}

#[tokio::test]
async fn five_megabytes_of_output_arrive_whole_and_then_the_end() {
    let (held, guest) = honest().await;
    let mut sandbox = run(&guest, Request::argv(["big"])).await;
    let mut stdout = sandbox.stdout.take().unwrap();
    let (all, ended) = tokio::join!(read_all(&mut stdout), next(&sandbox));
    assert!(all == big(), "{} bytes", all.len());
    assert!(matches!(ended, Report::Ended { wait_status: 0, .. }));
    assert!(matches!(next(&sandbox).await, Report::Gone { .. }));
    assert_eq!(held.kills(), 0);
}

#[tokio::test]
async fn a_program_that_nobody_reads_holds_up_no_other_and_no_order() {
    let (held, guest) = honest().await;
    let mut slow = run(&guest, Request::argv(["big"])).await;
    let mut fast = run(&guest, Request::argv(["big"])).await;
    // Nobody reads of the first; the second, and every question, is served all the same.
    assert!(read_all(&mut fast.stdout.take().unwrap()).await == big());
    assert_eq!(guest.measure().await.unwrap(), (7, 77));
    assert!(matches!(next(&fast).await, Report::Ended { .. }));
    let waits = timeout(Duration::from_millis(200), slow.next_report()).await;
    assert!(waits.is_err(), "it cannot have ended: {waits:?}");
    // The twin: once it is read, it ends too.
    assert!(read_all(&mut slow.stdout.take().unwrap()).await == big());
    assert!(matches!(next(&slow).await, Report::Ended { .. }));
    assert_eq!(held.kills(), 0);
}

#[tokio::test]
async fn what_nobody_reads_any_more_is_closed_and_the_guest_lives_on() {
    let (held, guest) = honest().await;
    let mut sandbox = run(&guest, Request::argv(["big"])).await;
    drop(sandbox.stdout.take());
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(sandbox);
    let mut other = run(&guest, Request::argv(["big"])).await;
    assert!(read_all(&mut other.stdout.take().unwrap()).await == big());
    assert_eq!(held.kills(), 0);
}

#[tokio::test]
async fn input_goes_to_its_own_program_and_ends_there() {
    let (held, guest) = honest().await;
    let (first_end, mut first) = input();
    let (second_end, mut second) = input();
    let cat = |end| Request { stdin: Stdin::Pipe(end), ..Request::argv(["cat"]) };
    let mut one = run(&guest, cat(first_end)).await;
    let mut two = run(&guest, cat(second_end)).await;
    write_all(&mut first, b"for the first");
    write_all(&mut second, b"for the second");
    drop(first);
    assert_eq!(read_all(&mut one.stdout.take().unwrap()).await, b"for the first");
    drop(second);
    assert_eq!(read_all(&mut two.stdout.take().unwrap()).await, b"for the second");
    assert_eq!(held.kills(), 0);
}

#[tokio::test]
async fn more_input_than_may_be_on_its_way_arrives_whole() {
    let (_held, guest) = honest().await;
    let (end, mut writer) = input();
    let mut sandbox = run(&guest, Request { stdin: Stdin::Pipe(end), ..Request::argv(["cat"]) }).await;
    let thread = std::thread::spawn(move || write_all(&mut writer, &big()));
    assert!(read_all(&mut sandbox.stdout.take().unwrap()).await == big());
    thread.join().unwrap();
    // Its twin: no input at all is an end at once.
    let mut nothing = run(&guest, Request::argv(["cat"])).await;
    assert_eq!(read_all(&mut nothing.stdout.take().unwrap()).await, b"");
}

#[tokio::test]
async fn a_terminal_is_typed_into_shown_and_resized() {
    let (held, guest) = honest().await;
    let (end, mut keys) = input();
    let request = Request { stdin: Stdin::Pipe(end), terminal: Some(SIZE), ..Request::argv(["shell"]) };
    let mut sandbox = run(&guest, request).await;
    let (stdin, typed) = (sandbox.stdin.take(), sandbox.typed.take());
    assert!(typed.is_some() && sandbox.stderr.is_none());
    tokio::spawn(async move { crate::pump::write_stdin(stdin, b"", typed).await });
    let mut stdout = sandbox.stdout.take().unwrap();
    let mut shown = [0u8; 3];
    write_all(&mut keys, b"ls\n");
    timeout(SOON, stdout.read_exact(&mut shown)).await.unwrap().unwrap();
    assert_eq!(&shown, b"ls\n");
    sandbox.resize(TerminalSize { rows: 30, columns: 99 }).unwrap();
    let mut size = [0u8; 6];
    timeout(SOON, stdout.read_exact(&mut size)).await.unwrap().unwrap();
    assert_eq!(&size, b"99x30\n");
    // What a person types to end the input goes the same way, and the terminal stays open.
    drop(keys);
    let mut last = [0u8; 1];
    timeout(SOON, stdout.read_exact(&mut last)).await.unwrap().unwrap();
    assert_eq!(last, [4]);
    sandbox.signal(rustix::process::Signal::HUP).unwrap();
    assert_eq!(read_all(&mut stdout).await, b"");
    assert!(matches!(next(&sandbox).await, Report::Ended { wait_status: 1, .. }));
    assert_eq!(held.kills(), 0);
}

#[tokio::test]
async fn a_program_that_could_not_be_started_is_an_error_and_others_go_on() {
    let (held, guest) = honest().await;
    let plan = plan(Request::argv(["missing"]), "").await;
    let mut sandbox = in_session(&plan, &guest, start(&plan)).unwrap();
    assert!(matches!(sandbox.release().await, Err(StartError::Wall(_))));
    drop(sandbox);
    let mut other = run(&guest, Request::argv(["cat"])).await;
    assert_eq!(read_all(&mut other.stdout.take().unwrap()).await, b"");
    assert_eq!(held.kills(), 0);
}

#[tokio::test]
async fn files_are_found_the_workspace_is_filled_and_what_differs_is_brought() {
    let (held, fake) = connect(None);
    let made = Arc::clone(&fake.made);
    tokio::spawn(fake.live());
    let (held, _guest) = held.proven().await;
    let found = held.link.find(vec!["/bin/sh".into(), "/bin/nothing".into()]).await.unwrap();
    assert_eq!(found, [true, false]);
    let nodes: Vec<Node> = (0..2000).map(|number| file(&number.to_string(), &[7; 1000])).collect();
    held.link.fill(futures_util::stream::iter(nodes.clone().into_iter().map(Ok))).await.unwrap();
    assert!(*made.lock().unwrap() == nodes);
    let paper = Paper::new();
    let brought = Arc::clone(&paper.brought);
    held.link.collect(Box::new(paper)).await.unwrap();
    assert_eq!(*brought.lock().unwrap(), ["now"]);
    assert_eq!(held.kills(), 0);
}

#[tokio::test]
async fn a_workspace_that_cannot_be_read_is_not_left_half_filled() {
    let (held, _guest) = honest().await;
    let nodes = vec![Ok(file("a", b"a")), Err(io::Error::other("a disk that fails"))];
    let error = held.link.fill(futures_util::stream::iter(nodes)).await.unwrap_err();
    assert_eq!(error.to_string(), "a disk that fails");
    held.is_given_up().await;
}

#[tokio::test]
async fn a_layer_that_cannot_be_written_is_an_error_and_the_guest_lives_on() {
    let (held, guest) = honest().await;
    let paper = Paper { room: 0, ..Paper::new() };
    let error = held.link.collect(Box::new(paper)).await.unwrap_err();
    assert_eq!(error.to_string(), "there is no room");
    assert_eq!(guest.measure().await.unwrap(), (7, 77));
    assert!(held.link.collect(Box::new(Paper::new())).await.is_ok(), "the twin: with room");
}

#[tokio::test]
async fn a_guest_that_has_proven_its_wall_says_what_was_seen() {
    let (held, mut fake) = connect(None);
    let (proven, ()) = tokio::join!(held.link.proven(begin()), fake.prove());
    assert_eq!(proven.unwrap().0, [("net.none".to_owned(), "nothing".to_owned())]);
    assert_eq!(held.kills(), 0);
}

/// What is left of the workspace of a guest that tells nothing more at its end, after so many looks.
async fn left_after(looks: usize) -> (Vec<String>, Option<PrivateLayer>) {
    let last = Paper::new();
    let at_the_end = Arc::clone(&last.brought);
    let (held, mut fake) = connect(Some(Box::new(last)));
    tokio::spawn(async move {
        fake.prove().await;
        while let Some(order) = fake.order().await {
            match order {
                FarOrder::Order(Order::End) => {
                    fake.tell(FarReport::Collected(Ok(()))).await;
                    return fake.tell(gone(Layer::Unchanged)).await;
                }
                order => fake.obey(order).await.unwrap(),
            }
        }
    });
    let (held, guest) = held.proven().await;
    for _ in 0..looks {
        held.link.collect(Box::new(Paper::new())).await.unwrap();
    }
    guest.order(Order::End).unwrap();
    tokio::time::timeout(SOON, guest.gone()).await.unwrap();
    let brought = at_the_end.lock().unwrap().clone();
    (brought, guest.take_left().unwrap().take_layer(None).unwrap())
}

#[tokio::test]
async fn what_was_told_before_the_end_is_a_layer_although_nothing_more_is_told() {
    let (told, layer) = left_after(1).await;
    assert!(told.is_empty(), "{told:?}");
    assert!(layer.is_some());
    assert!(left_after(0).await.1.is_none(), "the twin: nothing was ever told");
}

#[tokio::test]
async fn a_look_that_a_guest_could_not_finish_is_an_error_in_its_words() {
    let (held, mut fake) = connect(None);
    tokio::spawn(async move {
        fake.prove().await;
        while let Some(order) = fake.order().await {
            match order {
                FarOrder::Collect => fake.tell(FarReport::Collected(Err("it moved".to_owned()))).await,
                order => fake.obey(order).await.unwrap(),
            }
        }
    });
    let (held, guest) = held.proven().await;
    let error = held.link.collect(Box::new(Paper::new())).await.unwrap_err();
    assert_eq!(error.to_string(), "it moved");
    assert_eq!(guest.measure().await.unwrap(), (7, 77), "and it lives on");
}
