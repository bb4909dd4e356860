//! What was decided for one run: all of it by kind, for its outcome, and as it happens, for its events.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use ringfence_egress::{Ending, Reason, Record, Usage, plain_and_short};
use tokio::sync::mpsc;

use super::news::News;
use super::{Contact, Contacts, LONGEST_HOST, LONGEST_METHOD, LONGEST_PATH, MOST_CONTACTS, via};
use crate::event::Event;
use crate::run_id::RunId;

/// What was decided for one run.
#[derive(Debug, Default)]
pub(crate) struct Log {
    book: Mutex<Book>,
    /// Nothing where nobody can follow.
    news: Option<News>,
}

#[derive(Debug, Default)]
struct Book {
    contacts: BTreeMap<Key, Contact>,
    omitted: u64,
    omitted_denied: u64,
}

impl Book {
    /// The entry for `record`, if there is room for it; and whether it is new.
    fn entry(&mut self, record: &Record) -> Option<(&mut Contact, bool)> {
        let key = Key::of(record);
        let is_new = !self.contacts.contains_key(&key);
        let is_denied = record.denied.is_some();
        let alike = self.contacts.values().filter(|contact| contact.allowed != is_denied).count();
        if is_new && alike >= MOST_CONTACTS {
            self.omitted += 1;
            self.omitted_denied += u64::from(is_denied);
            return None;
        }
        Some((self.contacts.entry(key).or_insert_with(|| Contact::of(record)), is_new))
    }
}

/// What makes two contacts the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    host: String,
    port: u16,
    via: &'static str,
    method: Option<String>,
    path: Option<String>,
    denied: Option<&'static str>,
}

impl Key {
    fn of(record: &Record) -> Self {
        Self {
            host: plain_and_short(&record.host, LONGEST_HOST),
            port: record.port,
            via: via(record.via),
            method: record.method.as_deref().map(|method| plain_and_short(method, LONGEST_METHOD)),
            path: record.path.as_deref().map(|path| plain_and_short(path, LONGEST_PATH)),
            denied: record.denied.map(ringfence_egress::Reason::code),
        }
    }
}

impl Log {
    /// One whose decisions can be followed.
    pub(super) fn followed() -> Self {
        Self { news: Some(News::default()), ..Self::default() }
    }

    /// Tells `events` of decisions as they are made, in their order, until nobody listens. What is not told when this is dropped is
    /// still there.
    pub(crate) async fn pass_on(&self, run_id: &RunId, events: &mpsc::Sender<Event>) {
        let Some(news) = &self.news else { return };
        while news.pass_on(run_id, events).await.is_some() {
            news.more().await;
        }
    }

    /// What nobody was told yet, and how much was left out. It waits for no reader.
    pub(crate) fn take_rest(&self, run_id: &RunId) -> Vec<Event> {
        self.news.as_ref().map(|news| news.take_rest(run_id)).unwrap_or_default()
    }

    /// All that was decided so far.
    pub(crate) fn contacts(&self) -> Contacts {
        let book = self.book();
        let list = book.contacts.values().cloned().collect();
        Contacts { list, omitted: book.omitted, omitted_denied: book.omitted_denied }
    }

    fn book(&self) -> std::sync::MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn decided(&self, number: u64, record: &Record) {
        if let Some(news) = &self.news {
            news.decided(number, record);
        }
        let mut book = self.book();
        let Some((contact, is_new)) = book.entry(record) else { return };
        contact.count += 1;
        if is_new
            && !contact.allowed
            && let Some(news) = &self.news
        {
            news.violation(contact.violation());
        }
    }

    pub(super) fn ended(&self, number: u64, record: &Record, usage: &Usage) {
        if usage.ending == Ending::OverBudget {
            // It was let through, and cut: that, too, was denied.
            let cut = Record { denied: Some(Reason::Budget), rule: "net.budget".into(), ..record.clone() };
            self.decided(number, &cut);
        }
        if let Some(news) = &self.news {
            news.ended(number, record, usage);
        }
        // One that was begun in another run is new here.
        if let Some((contact, _)) = self.book().entry(record) {
            contact.bytes_up = contact.bytes_up.saturating_add(usage.bytes_up);
            contact.bytes_down = contact.bytes_down.saturating_add(usage.bytes_down);
            contact.status = usage.status.or(contact.status);
            if let Some(through) = &usage.through {
                contact.through = Some(through.to_string());
            }
            let latency = usage.latency.map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
            contact.latency_ms = latency.or(contact.latency_ms);
        }
    }
}
