//! Hosts that no rule names, and somebody who can be asked about them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use ringfence_egress::{Answer, Ask, Host, Limits, Rule, Rules};
use tokio::sync::Semaphore;

use crate::stage::{Names, Origin, Stage, get, rule};

/// Answers everything alike, and remembers what was asked.
#[derive(Debug)]
struct Person {
    answer: Answer,
    asked: Mutex<Vec<String>>,
    /// An answer needs one of these.
    ready: Semaphore,
}

impl Person {
    fn who_says(answer: Answer, ready: usize) -> Arc<Self> {
        Arc::new(Self { answer, asked: Mutex::default(), ready: Semaphore::new(ready) })
    }

    fn yes() -> Arc<Self> {
        Self::who_says(Answer::Yes { by: "me\nnobody".to_owned() }, 1000)
    }

    fn no() -> Arc<Self> {
        Self::who_says(Answer::No { why: "it is late".to_owned() }, 1000)
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl Ask for Person {
    fn ask<'a>(&'a self, host: &'a Host, port: u16) -> BoxFuture<'a, Answer> {
        self.asked.lock().unwrap().push(format!("{host}:{port}"));
        Box::pin(async move {
            self.ready.acquire().await.unwrap().forget();
            self.answer.clone()
        })
    }
}

async fn stage(rules: Rules, person: &Arc<Person>) -> Stage {
    let limits = Limits { answer: Duration::from_millis(400), ..Limits::default() };
    let ask = Arc::clone(person) as Arc<dyn Ask>;
    Stage::with(rules, Names::of(&[]), |builder| builder.ask(ask).limits(limits)).await
}

#[tokio::test]
async fn an_unknown_host_is_reached_when_somebody_says_yes_and_only_on_that_port() {
    let (origin, other) = (Origin::plain().await, Origin::plain().await);
    let person = Person::yes();
    let stage = stage(Rules::none().localhost(origin.port).localhost(other.port), &person).await;
    let authority = format!("a.test:{}", origin.port);
    for path in ["/one", "/two"] {
        assert!(stage.talk(get(&authority, path)).await.starts_with("HTTP/1.1 200"));
    }
    assert!(stage.connect(&authority).await.is_ok());
    assert!(stage.socks(b"A.test.", origin.port).await.is_ok());
    assert_eq!(person.asked(), [authority], "it is asked once, whatever the way and the spelling");
    assert!(stage.talk(get(&format!("a.test:{}", other.port), "/")).await.starts_with("HTTP/1.1 200"));
    assert_eq!(person.asked().len(), 2, "another port is another question");
    let decided = stage.book.decided.lock().unwrap();
    assert!(decided.iter().all(|record| &*record.rule == "net.unknown approved by me?nobody"), "{decided:?}");
}

#[tokio::test]
async fn a_no_is_a_denial_that_says_why_and_nothing_is_looked_up() {
    let person = Person::no();
    let stage = stage(Rules::none(), &person).await;
    let said = stage.talk(get("a.test", "/")).await;
    assert!(said.starts_with("HTTP/1.1 403") && said.contains("it is late"), "{said}");
    assert!(stage.connect("a.test:443").await.unwrap_err().contains("it is late"));
    assert_eq!(stage.socks(b"a.test", 443).await.unwrap_err(), 2);
    assert_eq!((person.asked().len(), stage.names.asked().len()), (2, 0));
    assert_eq!(stage.book.denials(), ["net.not-listed"; 3]);
}

#[tokio::test]
async fn what_is_refused_whatever_anybody_says_is_no_question() {
    let person = Person::yes();
    let port = rule("listed.test:8443");
    let stage = stage(Rules::none().deny(rule("bad.test:443")).allow(port), &person).await;
    for target in [
        "bad.test:443",
        "webhook.site:443",
        "x.webhook.site:443",
        "localhost:443",
        "127.0.0.1:443",
        "10.0.0.7:443",
        "169.254.169.254:80",
        "[::1]:443",
        "0x7f.1:443",
        "listed.test:443",
    ] {
        assert!(stage.connect(target).await.is_err(), "{target}");
    }
    assert_eq!((person.asked(), stage.names.asked().len()), (Vec::<String>::new(), 0));
    // The twin: a name that is merely unknown.
    drop(stage.connect("unknown.test:443").await);
    assert_eq!(person.asked(), ["unknown.test:443"]);
}

#[tokio::test]
async fn where_nobody_was_shown_the_question_nothing_was_decided() {
    let check = async |answer: Answer, expected: usize| {
        let person = Person::who_says(answer, 1000);
        let stage = stage(Rules::none(), &person).await;
        // More often than anybody may be asked.
        for _ in 0..40 {
            assert!(stage.connect("unknown.test:443").await.is_err());
        }
        assert_eq!(person.asked().len(), expected);
        assert_eq!(stage.names.asked().len(), 0);
    };
    check(Answer::Absent { why: "nobody is there".to_owned() }, 40).await;
    check(Answer::No { why: "it is late".to_owned() }, 1).await;
}

#[tokio::test]
async fn an_approved_name_that_leads_inside_is_refused_all_the_same() {
    let origin = Origin::plain().await;
    let person = Person::yes();
    let held = stage(Rules::none(), &person).await;
    let authority = format!("a.test:{}", origin.port);
    assert!(held.talk(get(&authority, "/")).await.starts_with("HTTP/1.1 403"));
    assert_eq!((held.book.denials(), origin.connections()), (vec!["net.address"], 0));
    assert_eq!(held.names.asked(), ["a.test"], "the twin: it was approved, and looked up");
}

#[tokio::test]
async fn a_deny_rule_beats_an_approval_on_its_paths() {
    let origin = Origin::plain().await;
    let person = Person::yes();
    let mut denied = rule(format!("a.test:{}", origin.port));
    denied.net.paths = vec!["/secret/**".parse().unwrap()];
    let stage = stage(Rules::none().deny(Rule::new(denied.net, "denied")).localhost(origin.port), &person).await;
    let authority = format!("a.test:{}", origin.port);
    assert!(stage.talk(get(&authority, "/open")).await.starts_with("HTTP/1.1 200"));
    assert!(stage.talk(get(&authority, "/secret/x")).await.starts_with("HTTP/1.1 403"));
    assert!(stage.connect(&authority).await.is_err(), "nobody could see the path in it");
    assert_eq!(origin.seen().len(), 1);
}

#[tokio::test]
async fn who_does_not_answer_in_time_has_said_no_and_is_not_asked_again() {
    let person = Person::who_says(Answer::Yes { by: "me".to_owned() }, 0);
    let stage = stage(Rules::none(), &person).await;
    for _ in 0..2 {
        assert!(stage.connect("a.test:443").await.unwrap_err().contains("nobody answered in time"));
    }
    assert_eq!(person.asked().len(), 1);
}

#[tokio::test]
async fn many_connections_wait_for_one_answer() {
    let origin = Origin::plain().await;
    let person = Person::who_says(Answer::Yes { by: "me".to_owned() }, 0);
    let stage = Arc::new(stage(Rules::none().localhost(origin.port), &person).await);
    let authority = format!("a.test:{}", origin.port);
    let waiting: Vec<_> = (0..20)
        .map(|_| {
            let (stage, authority) = (Arc::clone(&stage), authority.clone());
            tokio::spawn(async move { stage.connect(&authority).await.is_ok() })
        })
        .collect();
    while person.asked().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(origin.connections(), 0);
    person.ready.add_permits(1);
    for one in waiting {
        assert!(one.await.unwrap());
    }
    assert_eq!(person.asked().len(), 1);
}

#[tokio::test]
async fn nobody_is_worn_down_by_questions() {
    let person = Person::who_says(Answer::Yes { by: "me".to_owned() }, 0);
    let at_once = Arc::new(stage(Rules::none(), &person).await);
    let asking: Vec<_> = (0..40)
        .map(|number| {
            let stage = Arc::clone(&at_once);
            tokio::spawn(async move { stage.connect(&format!("n{number}.test:443")).await.unwrap_err() })
        })
        .collect();
    let mut refused = 0;
    for one in asking {
        refused += usize::from(one.await.unwrap().contains("too many questions wait"));
    }
    assert_eq!((person.asked().len(), refused), (4, 36));
    let person = Person::no();
    let in_all = stage(Rules::none(), &person).await;
    for number in 0..40 {
        assert!(in_all.connect(&format!("n{number}.test:443")).await.is_err());
    }
    assert_eq!(person.asked().len(), 32);
}
