//! Connections that a guest relays, honest or not.

use ringfence_guest::relay::{
    CONNECTION_WINDOW, ConnectionNumber, FarDoor, LONGEST_QUESTION, MOST_QUESTIONS, OfConnection, To, ToConnection,
};
use tokio::sync::mpsc;

use super::*;
use crate::backend::door::{Arriving, PORT};

/// The most connections of the doors of these tests.
const MOST: u32 = 4;

fn with_a_door() -> Begin {
    let places = ["0.0.0.0:80", "127.198.0.2:8080"].map(|at| at.parse().unwrap()).to_vec();
    let door = FarDoor { port: PORT, names: "127.0.0.1:53".parse().unwrap(), places, connections: MOST };
    Begin { door: Some(door), ..begin() }
}

fn of(connection: ConnectionNumber, what: OfConnection) -> FarReport {
    FarReport::Connection { connection, what }
}

fn opened_to(at: &str) -> FarReport {
    of(1, OfConnection::Opened(To::Place(at.parse().unwrap())))
}

/// How many questions may wait.
const QUESTIONS: u64 = MOST_QUESTIONS as u64;

fn asks(question: u64, size: usize) -> FarReport {
    FarReport::Question { question, message: vec![b'?'; size] }
}

fn bytes(connection: ConnectionNumber, size: usize) -> FarReport {
    of(connection, OfConnection::Bytes(vec![b'x'; size]))
}

/// Says that it listens, and that its wall stands.
async fn prove_with_a_door(fake: &mut Fake) {
    assert!(matches!(fake.order().await, Some(FarOrder::Begin { .. })), "the first order");
    fake.tell(FarReport::Report(Report::Door)).await;
    fake.tell(FarReport::Report(Report::Proven(Vec::new()))).await;
}

/// A link to a guest that has opened its door, and where its connections arrive.
async fn open_all() -> (Held, Fake, Arriving) {
    let (held, mut fake) = connect(None);
    let (proven, ()) = tokio::join!(held.link.proven(with_a_door()), prove_with_a_door(&mut fake));
    let arriving = proven.unwrap().1.expect("no door");
    (held, fake, arriving)
}

/// Likewise, and where those arrive that came to the proxy.
async fn open() -> (Held, Fake, mpsc::Receiver<ringfence_egress::Stream>) {
    let (held, fake, arriving) = open_all().await;
    (held, fake, arriving.proxy)
}

/// Whether a guest that says `said`, to a host that serves nothing of it, is still asked afterwards.
async fn is_believed(said: Vec<FarReport>) -> bool {
    let (held, mut fake, _arriving) = open_all().await;
    tokio::spawn(async move {
        for report in said {
            fake.tell(report).await;
        }
        while let Some(order) = fake.order().await {
            if let FarOrder::Find(_) = order {
                fake.tell(FarReport::Found(vec![true])).await;
            }
        }
    });
    let found = tokio::time::timeout(SOON, held.link.find(vec!["a".into()])).await.unwrap();
    assert_eq!(held.kills(), usize::from(found.is_err()));
    found.is_ok()
}

#[tokio::test]
async fn what_is_said_of_a_connection_in_turn_is_believed() {
    let opened = |number| of(number, OfConnection::Opened(To::Proxy));
    assert!(is_believed(vec![opened(1), opened(2), opened(3), opened(4)]).await);
    assert!(is_believed(vec![opened(1), bytes(1, PIECE), of(1, OfConnection::End), of(1, OfConnection::Closed)]).await);
    assert!(is_believed([vec![opened(1)], vec![bytes(1, PIECE); CONNECTION_WINDOW / PIECE]].concat()).await);
    for to in ["127.0.0.1:80", "127.198.4.5:80", "127.198.0.2:8080"] {
        assert!(is_believed(vec![opened_to(to)]).await, "{to}");
    }
    let longest = LONGEST_QUESTION;
    assert!(is_believed((1..=QUESTIONS).map(|number| asks(number, longest)).collect()).await);
    // One that is closed makes room for another, which has the next number.
    let (one, two, three, four) = (opened(1), opened(2), opened(3), opened(4));
    assert!(is_believed(vec![one, two, three, four, of(2, OfConnection::Closed), opened(5)]).await);
}

#[tokio::test]
async fn what_is_said_of_a_connection_out_of_turn_gives_the_guest_up() {
    let opened = |number| of(number, OfConnection::Opened(To::Proxy));
    let cases: Vec<(&str, Vec<FarReport>)> = vec![
        ("number 0", vec![opened(0)]),
        ("a number that is left out", vec![opened(2)]),
        ("the same one twice", vec![opened(1), opened(1)]),
        ("the number of one that is closed", vec![opened(1), of(1, OfConnection::Closed), opened(1)]),
        ("the last number that there is", vec![opened(u64::MAX)]),
        ("more than may be", (1..=u64::from(MOST) + 1).map(opened).collect()),
        ("bytes of nobody", vec![bytes(1, 1)]),
        ("no bytes", vec![opened(1), bytes(1, 0)]),
        ("a piece that is too large", vec![opened(1), bytes(1, PIECE + 1)]),
        ("over the window", [vec![opened(1)], vec![bytes(1, PIECE); CONNECTION_WINDOW / PIECE + 1]].concat()),
        ("after its end", vec![opened(1), of(1, OfConnection::End), bytes(1, 1)]),
        ("two ends", vec![opened(1), of(1, OfConnection::End), of(1, OfConnection::End)]),
        ("nothing was sent that could be taken", vec![opened(1), of(1, OfConnection::Taken(1))]),
        ("nothing was taken", vec![opened(1), of(1, OfConnection::Taken(0))]),
        ("the end of nobody", vec![of(1, OfConnection::End)]),
        ("nobody is closed", vec![of(1, OfConnection::Closed)]),
        ("closed twice", vec![opened(1), of(1, OfConnection::Closed), of(1, OfConnection::Closed)]),
        ("bytes of one that is closed", vec![opened(1), of(1, OfConnection::Closed), bytes(1, 1)]),
        ("a door again", vec![FarReport::Report(Report::Door)]),
        ("at an address that nobody listens at", vec![opened_to("10.0.0.1:80")]),
        ("at another address of a place", vec![opened_to("127.198.0.3:8080")]),
        ("at a port that nobody listens at", vec![opened_to("127.0.0.1:81")]),
        ("the proxy's own, under another name", vec![opened_to("127.0.0.1:3128")]),
        ("a question without a number", vec![asks(0, 1)]),
        ("a question that is left out", vec![asks(2, 1)]),
        ("the same question twice", vec![asks(1, 1), asks(1, 1)]),
        ("a question without words", vec![asks(1, 0)]),
        ("more questions than may wait", (1..=2 * QUESTIONS).map(|number| asks(number, 1)).collect()),
    ];
    for (name, said) in cases {
        assert!(!is_believed(said).await, "{name}");
    }
}

#[tokio::test]
async fn a_guest_without_a_door_has_no_connections_and_one_with_a_door_opens_it_first() {
    let proven = FarReport::Report(Report::Proven(Vec::new()));
    let door = FarReport::Report(Report::Door);
    let (opened, asked) = (of(1, OfConnection::Opened(To::Proxy)), asks(1, 1));
    for (begin, said, believed) in [
        (with_a_door(), vec![door.clone(), proven.clone()], true),
        (with_a_door(), vec![proven.clone()], false),
        (with_a_door(), vec![door.clone(), door.clone(), proven.clone()], false),
        (with_a_door(), vec![door.clone(), opened.clone(), proven.clone()], false),
        (with_a_door(), vec![door.clone(), asked.clone(), proven.clone()], false),
        (begin(), vec![proven.clone()], true),
        (begin(), vec![door, proven.clone()], false),
    ] {
        let (held, mut fake) = connect(None);
        tokio::spawn(async move {
            fake.order().await;
            for report in said {
                fake.tell(report).await;
            }
            while fake.order().await.is_some() {}
        });
        assert_eq!(held.link.proven(begin).await.is_ok(), believed);
    }
    for said in [opened, asked] {
        let (held, mut fake) = connect(None);
        let (proven, ()) = tokio::join!(held.link.proven(begin()), fake.prove());
        proven.unwrap();
        fake.tell(said).await;
        held.is_given_up().await;
    }
}

#[tokio::test]
async fn each_connection_arrives_where_it_was_made_to() {
    let (_held, mut fake, mut arriving) = open_all().await;
    let place: std::net::SocketAddrV4 = "127.198.0.2:8080".parse().unwrap();
    for (number, to) in [(1, To::Place(place)), (2, To::Names), (3, To::Proxy)] {
        fake.tell(of(number, OfConnection::Opened(to))).await;
        fake.tell(of(number, OfConnection::Bytes(vec![b'0' + u8::try_from(number).unwrap()]))).await;
    }
    let (mut one, at) = tokio::time::timeout(SOON, arriving.connections.recv()).await.unwrap().unwrap();
    let mut two = tokio::time::timeout(SOON, arriving.long_questions.recv()).await.unwrap().unwrap();
    let mut three = tokio::time::timeout(SOON, arriving.proxy.recv()).await.unwrap().unwrap();
    assert_eq!((one.read_u8().await.unwrap(), at), (b'1', place));
    assert_eq!((two.read_u8().await.unwrap(), three.read_u8().await.unwrap()), (b'2', b'3'));
}

#[tokio::test]
async fn every_question_gets_its_answer_or_none_and_makes_room_for_another() {
    let (held, mut fake, mut arriving) = open_all().await;
    let answers = tokio::spawn(async move {
        while let Some(ringfence_egress::RelayedQuestion { message, answer }) = arriving.questions.recv().await {
            // A long one is dropped, as one that is none.
            if message.len() == 1 {
                answer.send([message.as_slice(), b"!"].concat()).unwrap();
            }
        }
    });
    for number in 1..=3 * QUESTIONS {
        let is_long = number % 2 == 0;
        fake.tell(asks(number, if is_long { LONGEST_QUESTION } else { 1 })).await;
        let expected: &[u8] = if is_long { b"" } else { b"?!" };
        match tokio::time::timeout(SOON, fake.order()).await.unwrap() {
            Some(FarOrder::Answer { question, message }) => {
                assert_eq!((question, message.as_slice()), (number, expected))
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(held.kills(), 0);
    drop(fake);
    tokio::time::timeout(SOON, answers).await.expect("no more can come").unwrap();
}

#[tokio::test]
async fn where_nobody_answers_questions_the_guest_is_told_so() {
    let (_held, mut fake, arriving) = open_all().await;
    drop(arriving);
    fake.tell(asks(1, 1)).await;
    let told = tokio::time::timeout(SOON, fake.order()).await.unwrap();
    assert!(matches!(told, Some(FarOrder::Answer { question: 1, message }) if message.is_empty()));
}

/// Sends back what it is sent, within what may be on its way, until it is told that nothing more comes.
async fn echo(mut fake: Fake, connection: ConnectionNumber) -> (Vec<ToConnection>, Fake) {
    fake.tell(of(connection, OfConnection::Opened(To::Proxy))).await;
    let (mut waiting, mut untaken, mut ends, mut other) = (Vec::new(), 0, false, Vec::new());
    while let Some(order) = fake.order().await {
        let FarOrder::Connection { connection: number, what } = order else { panic!("{order:?}") };
        assert_eq!(number, connection);
        match what {
            ToConnection::Bytes(bytes) => {
                let size = u32::try_from(bytes.len()).unwrap();
                fake.tell(of(connection, OfConnection::Taken(size))).await;
                waiting.extend(bytes);
            }
            ToConnection::Taken(bytes) => untaken -= usize::try_from(bytes).unwrap(),
            ToConnection::End => ends = true,
            ToConnection::Close => {
                other.push(ToConnection::Close);
                fake.tell(of(connection, OfConnection::Closed)).await;
                return (other, fake);
            }
        }
        loop {
            let size = waiting.len().min(PIECE).min(CONNECTION_WINDOW - untaken);
            if size == 0 {
                break;
            }
            untaken += size;
            fake.tell(of(connection, OfConnection::Bytes(waiting.drain(..size).collect()))).await;
        }
        if ends && waiting.is_empty() {
            ends = false;
            other.push(ToConnection::End);
            fake.tell(of(connection, OfConnection::End)).await;
        }
    }
    (other, fake)
}

#[tokio::test]
async fn a_connection_carries_much_both_ways_and_each_side_ends_by_itself() {
    let (held, fake, mut arrives) = open().await;
    let guest = tokio::spawn(echo(fake, 1));
    let stream = tokio::time::timeout(SOON, arrives.recv()).await.unwrap().unwrap();
    let (mut reader, mut writer) = split(stream);
    let writes = async {
        writer.write_all(&big()).await.unwrap();
        writer.shutdown().await.unwrap();
        assert!(writer.write_all(b"more").await.is_err(), "after its end");
    };
    let mut came = Vec::new();
    let both = async { tokio::join!(writes, reader.read_to_end(&mut came)).1 };
    tokio::time::timeout(SOON, both).await.expect("somebody waits for ever").unwrap();
    assert!(came == big(), "{} bytes came", came.len());
    drop((reader, writer));
    let (other, _fake) = tokio::time::timeout(SOON, guest).await.unwrap().unwrap();
    assert_eq!(other, [ToConnection::End, ToConnection::Close], "the guest is told when nobody holds the stream");
    assert_eq!(held.kills(), 0);
}

#[tokio::test]
async fn what_nobody_takes_inside_stops_at_the_window_and_holds_up_nobody_else() {
    let (held, mut fake, mut arrives) = open().await;
    fake.tell(of(1, OfConnection::Opened(To::Proxy))).await;
    fake.tell(of(2, OfConnection::Opened(To::Proxy))).await;
    let mut first = arrives.recv().await.unwrap();
    let mut second = arrives.recv().await.unwrap();
    let stuck = tokio::spawn(async move { first.write_all(&big()).await });
    let mut seen = 0;
    while seen < CONNECTION_WINDOW {
        match fake.order().await.unwrap() {
            FarOrder::Connection { connection: 1, what: ToConnection::Bytes(bytes) } => seen += bytes.len(),
            other => panic!("{other:?}"),
        }
    }
    second.write_all(b"small").await.unwrap();
    let next = tokio::time::timeout(SOON, fake.order()).await.unwrap().unwrap();
    let small = ToConnection::Bytes(b"small".to_vec());
    assert!(matches!(next, FarOrder::Connection { connection: 2, what } if what == small));
    assert!(!stuck.is_finished());
    // The guest closes it: who writes is told.
    fake.tell(of(1, OfConnection::Closed)).await;
    assert!(tokio::time::timeout(SOON, stuck).await.unwrap().unwrap().is_err());
    assert_eq!(held.kills(), 0);
}

#[tokio::test]
async fn a_connection_that_is_cut_off_inside_is_an_error_and_no_end() {
    let (_held, mut fake, mut arrives) = open().await;
    for number in [1, 2] {
        fake.tell(of(number, OfConnection::Opened(To::Proxy))).await;
        fake.tell(of(number, OfConnection::Bytes(b"some".to_vec()))).await;
    }
    fake.tell(of(1, OfConnection::Closed)).await;
    fake.tell(of(2, OfConnection::End)).await;
    fake.tell(of(2, OfConnection::Closed)).await;
    let mut came = Vec::new();
    let error = arrives.recv().await.unwrap().read_to_end(&mut came).await.unwrap_err();
    assert_eq!((error.kind(), came.as_slice()), (io::ErrorKind::ConnectionReset, b"some".as_slice()));
    came.clear();
    arrives.recv().await.unwrap().read_to_end(&mut came).await.unwrap();
    assert_eq!(came, b"some", "the twin: one that had said all");
}

#[tokio::test]
async fn where_nobody_serves_connections_are_closed_inside() {
    let (held, mut fake, arrives) = open().await;
    drop(arrives);
    fake.tell(of(1, OfConnection::Opened(To::Proxy))).await;
    let order = tokio::time::timeout(SOON, fake.order()).await.unwrap();
    assert!(matches!(order, Some(FarOrder::Connection { connection: 1, what: ToConnection::Close })));
    // What was on its way meanwhile is dropped.
    fake.tell(bytes(1, 1)).await;
    fake.tell(of(1, OfConnection::Closed)).await;
    let (found, ()) = tokio::join!(held.link.find(vec!["a".into()]), async {
        fake.order().await;
        fake.tell(FarReport::Found(vec![true])).await;
    });
    assert_eq!(found.unwrap(), [true]);
}

#[tokio::test]
async fn connections_that_come_and_go_before_anybody_serves_them_are_bounded() {
    let (held, mut fake, mut arrives) = open().await;
    for number in 1..=100 {
        fake.tell(of(number, OfConnection::Opened(To::Proxy))).await;
        fake.tell(bytes(number, PIECE)).await;
        fake.tell(of(number, OfConnection::Closed)).await;
    }
    let (found, ()) = tokio::join!(held.link.find(vec!["a".into()]), async {
        while !matches!(fake.order().await, Some(FarOrder::Find(_))) {}
        fake.tell(FarReport::Found(vec![true])).await;
    });
    found.unwrap();
    let mut waiting = 0;
    while arrives.try_recv().is_ok() {
        waiting += 1;
    }
    assert_eq!(waiting, MOST, "as many as may be there at once");
}

#[tokio::test]
async fn a_guest_that_is_gone_takes_its_connections_with_it() {
    let (held, mut fake, mut arrives) = open().await;
    fake.tell(of(1, OfConnection::Opened(To::Proxy))).await;
    let mut stream = arrives.recv().await.unwrap();
    drop(fake);
    held.is_given_up().await;
    assert!(tokio::time::timeout(SOON, stream.read_u8()).await.unwrap().is_err());
    assert!(stream.write_all(b"x").await.is_err());
    assert!(tokio::time::timeout(SOON, arrives.recv()).await.unwrap().is_none(), "no more can come");
}
