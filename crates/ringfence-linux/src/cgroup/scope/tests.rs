use std::os::unix::net::UnixListener;
use std::sync::mpsc;

use proptest::prelude::*;

use super::*;

/// A bus that lets us in, answers the greeting, and then says `answer` of what systemd was asked for. Gives what was asked.
fn with_a_bus(answer: fn(u32) -> Vec<u8>) -> (Result<(), NoScope>, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bus");
    let listener = UnixListener::bind(&path).unwrap();
    let (asked, what) = mpsc::channel();
    let bus = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let user: String =
            rustix::process::geteuid().as_raw().to_string().bytes().map(|b| format!("{b:02x}")).collect();
        let mut expect = |wanted: String| {
            let mut got = vec![0; wanted.len()];
            stream.read_exact(&mut got).unwrap();
            assert_eq!(String::from_utf8(got).unwrap(), wanted);
        };
        expect(format!("\0AUTH EXTERNAL {user}\r\n"));
        stream.write_all(b"OK 0123456789abcdef\r\n").unwrap();
        let mut begin = [0; 7];
        stream.read_exact(&mut begin).unwrap();
        assert_eq!(&begin, b"BEGIN\r\n");
        for serial in [1, 2] {
            let mut start = [0; message::START];
            stream.read_exact(&mut start).unwrap();
            let mut rest = vec![0; message::length_after(&start).unwrap()];
            stream.read_exact(&mut rest).unwrap();
            if serial == 1 {
                // A signal first, which is nobody's answer.
                stream.write_all(&said(4, None, None, None)).unwrap();
                stream.write_all(&said(2, Some(1), None, Some(":1.7"))).unwrap();
            } else {
                asked.send([start.as_slice(), &rest].concat()).unwrap();
                stream.write_all(&answer(2)).unwrap();
            }
        }
    });
    let result = ask(&path, "ringfence-7-9.scope", 7, Instant::now() + PATIENCE);
    bus.join().unwrap();
    (result, what.recv().unwrap())
}

/// A message with these fields.
fn said(kind: u8, answers: Option<u32>, error: Option<&str>, text: Option<&str>) -> Vec<u8> {
    let mut fields: Vec<u8> = Vec::new();
    let aligned = |bytes: &mut Vec<u8>, to: usize| bytes.resize(bytes.len().next_multiple_of(to), 0);
    if let Some(serial) = answers {
        fields.extend([5, 1, b'u', 0]);
        fields.extend(serial.to_le_bytes());
    }
    if let Some(name) = error {
        aligned(&mut fields, 8);
        fields.extend([4, 1, b's', 0]);
        fields.extend(u32::try_from(name.len()).unwrap().to_le_bytes());
        fields.extend(name.bytes().chain([0]));
    }
    let mut body = Vec::new();
    if let Some(text) = text {
        aligned(&mut fields, 8);
        fields.extend([8, 1, b'g', 0, 1, b's', 0]);
        body.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
        body.extend(text.bytes().chain([0]));
    }
    let mut message = vec![b'l', kind, 0, 1];
    message.extend(u32::try_from(body.len()).unwrap().to_le_bytes());
    message.extend(99u32.to_le_bytes());
    message.extend(u32::try_from(fields.len()).unwrap().to_le_bytes());
    message.extend(fields);
    aligned(&mut message, 8);
    message.extend(body);
    message
}

#[test]
fn systemd_is_asked_for_a_scope_that_is_ours_with_us_in_it() {
    let (result, asked) = with_a_bus(|serial| said(2, Some(serial), None, None));
    result.unwrap();
    let text = String::from_utf8_lossy(&asked);
    for word in ["org.freedesktop.systemd1", "StartTransientUnit", "ssa(sv)a(sa(sv))", "ringfence-7-9.scope", "PIDs"] {
        assert!(text.contains(word), "{word} in {text}");
    }
    // The property that makes the cgroup ours: a boolean, aligned to four bytes.
    let at = asked.windows(9).position(|bytes| bytes == b"Delegate\0").unwrap() + 9;
    assert_eq!(&asked[at..at + 3], &[1, b'b', 0]);
    let value = (at + 3).next_multiple_of(4);
    assert_eq!(&asked[value..value + 4], &1u32.to_le_bytes());
    // And the only process that is moved.
    let at = asked.windows(5).position(|bytes| bytes == b"PIDs\0").unwrap() + 5;
    assert_eq!(&asked[at..at + 4], &[2, b'a', b'u', 0]);
    let value = (at + 4).next_multiple_of(4);
    assert_eq!(&asked[value..value + 8], [4u32.to_le_bytes(), 7u32.to_le_bytes()].concat());
}

#[test]
fn a_no_is_told_in_the_words_of_who_said_it() {
    let no = |serial| said(3, Some(serial), Some("org.freedesktop.DBus.Error.AccessDenied"), Some("not for you"));
    assert_eq!(with_a_bus(no).0.unwrap_err().to_string(), "systemd made no scope: not for you");
    let unknown = |serial| said(3, Some(serial), Some("org.freedesktop.DBus.Error.ServiceUnknown"), None);
    assert!(with_a_bus(unknown).0.unwrap_err().to_string().ends_with("ServiceUnknown"));
}

#[test]
fn where_there_is_no_bus_there_is_no_scope() {
    let folder = tempfile::tempdir().unwrap();
    let asked = ask(&folder.path().join("bus"), "ringfence-7-9.scope", 7, Instant::now() + PATIENCE);
    assert!(matches!(asked, Err(NoScope::Bus { .. })));
    assert!(enter_scope(&folder.path().join("bus")).is_err());
}

#[test]
fn a_number_that_a_container_gave_is_told_to_nobody() {
    assert!(is_known_to_all(4_026_531_836));
    assert!(!is_known_to_all(4_026_532_201) && !is_known_to_all(0));
}

/// How long it takes to give up a bus at `path` after a fifth of a second.
fn given_up(path: &Path) -> Duration {
    let begun = Instant::now();
    let asked = ask(path, "ringfence-7-9.scope", 7, begun + Duration::from_millis(200));
    let Err(NoScope::Bus { source, .. }) = asked else { panic!("{asked:?}") };
    assert!(source.to_string().starts_with("it did not answer within "), "{source}");
    begun.elapsed()
}

#[test]
fn a_bus_that_says_a_little_again_and_again_is_not_waited_for_longer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bus");
    let listener = UnixListener::bind(&path).unwrap();
    let bus = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        while stream.write_all(b"O").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    assert!(given_up(&path) < Duration::from_secs(2));
    bus.join().unwrap();
}

#[test]
fn a_bus_that_says_nothing_is_not_waited_for_either() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bus");
    let _bus = UnixListener::bind(&path).unwrap();
    assert!(given_up(&path) < Duration::from_secs(2));
}

#[test]
fn a_bus_that_takes_nobody_in_is_not_waited_for_either() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bus");
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&socket, 0).unwrap();
    let _first = UnixStream::connect(&path).unwrap();
    assert!(given_up(&path) < Duration::from_secs(2));
}

#[test]
fn only_the_second_version_and_the_very_name_count_as_being_there() {
    let name = "ringfence-7-9.scope";
    assert!(is_in("1:name=systemd:/x\n0::/user.slice/app.slice/ringfence-7-9.scope\n", name));
    for elsewhere in
        ["0::/", "0::/ringfence-7-9.scope/below", "0::/other-ringfence-7-9.scope", "5:pids:/ringfence-7-9.scope", ""]
    {
        assert!(!is_in(elsewhere, name), "{elsewhere}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(start in any::<[u8; 16]>(), rest in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut start = start;
        Arrived::decode(&start, &rest);
        start[0] = b'l';
        start[3] = 1;
        message::length_after(&start);
        Arrived::decode(&start, &rest);
    }
}
