//! Libraries that hand on what they are given: to a chat, a queue, a table, a mailbox, a store of somebody else.

use super::call::Given;
use super::databases::module_of;
use super::quick::{Listed, listed};
use super::value::{Held, Value};
use super::walk::Walk;
use crate::analysis::{Contact, Fact, Flow};
use crate::path::{PathClass, classify};
use crate::text::{Hole, Text};

/// Such libraries.
static TALKERS: Listed = Listed::new(|| {
    listed(&[
        "slack_sdk",
        "slack",
        "slack_bolt",
        "telegram",
        "telebot",
        "aiogram",
        "pyrogram",
        "telethon",
        "discord",
        "discord_webhook",
        "dhooks",
        "sendgrid",
        "mailjet_rest",
        "mailgun",
        "yagmail",
        "redmail",
        "exchangelib",
        "twilio",
        "vonage",
        "pushbullet",
        "pushover",
        "ntfy",
        "apprise",
        "notifiers",
        "paho",
        "aiomqtt",
        "pika",
        "aio_pika",
        "kombu",
        "kafka",
        "aiokafka",
        "confluent_kafka",
        "nats",
        "stomp",
        "zmq",
        "grpc",
        "websocket",
        "websockets",
        "socketio",
        "pusher",
        "ably",
        "googleapiclient",
        "pydrive",
        "pydrive2",
        "gspread",
        "pygsheets",
        "notion_client",
        "pyairtable",
        "airtable",
        "box",
        "boxsdk",
        "onedrivesdk",
        "msgraph",
        "webdav3",
        "webdav4",
        "mega",
        "pastebin",
        "pbwrap",
        "pasteboard",
        "scp",
        "tweepy",
        "praw",
        "atproto",
        "mastodon",
        "b2sdk",
        "oss2",
        "qcloud_cos",
        "cloudinary",
        "firebase_admin",
        "supabase",
        "ipfshttpclient",
        "requests_toolbelt",
        "requests_unixsocket",
        "impacket",
        "smb",
        "smbclient",
        "smbprotocol",
        "mqtt",
        "amqplib",
        "kafkajs",
        "stompit",
        "nodemailer",
        "@sendgrid/mail",
        "mailgun-js",
        "emailjs",
        "@slack/web-api",
        "@slack/webhook",
        "@slack/bolt",
        "eris",
        "node-telegram-bot-api",
        "telegraf",
        "grammy",
        "pusher-js",
        "@google-cloud/storage",
        "@google-cloud/pubsub",
        "googleapis",
        "@azure/storage-blob",
        "@azure/service-bus",
        "@azure/storage-file-share",
        "@vercel/blob",
        "@supabase/supabase-js",
        "firebase",
        "firebase-admin",
        "minio",
        "backblaze-b2",
        "ali-oss",
        "dropbox",
        "basic-ftp",
        "ftp",
        "jsftp",
        "ssh2-sftp-client",
        "node-ssh",
        "node-scp",
        "scp2",
        "webdav",
        "superagent",
        "twitter-api-v2",
        "@notionhq/client",
        "pastebin-js",
        "ipfs-http-client",
    ])
});

/// Words in the names of methods that hand something on.
const HANDS: &[&str] = &[
    "send", "post", "publish", "put", "upload", "write", "append", "insert", "create", "produce", "emit", "push",
    "single", "multiple", "paste", "reply", "store", "set", "share", "attach", "execute", "request", "unary", "stream",
    "save", "add", "update", "multi", "respond", "tweet", "submit", "mail", "message",
];

/// Arguments that say who asks, and carry nothing.
const WHO: &[&str] = &[
    "token",
    "auth",
    "api_key",
    "apikey",
    "password",
    "key_filename",
    "private_key",
    "credentials",
    "headers",
    "bot_token",
    "username",
    "user",
    "secret",
];

impl Walk<'_, '_> {
    /// A call of a library that hands things on: what it is given of the machine's own leaves it.
    pub(super) fn by_talker(&mut self, name: &str, given: &Given) {
        if !TALKERS.contains(module_of(name)) {
            return;
        }
        let method = name.rsplit('.').next().unwrap_or(name).trim_end_matches("()").to_ascii_lowercase();
        if !HANDS.iter().any(|word| method.contains(word)) && name.contains('.') {
            return;
        }
        let mut sent = Value::default();
        let named = given.named.iter().filter(|(key, _, _)| !WHO.contains(&key.as_str())).map(|(_, held, _)| held);
        for held in given.args.iter().chain(named) {
            self.carried(held, 3, &mut sent);
        }
        let sends: Vec<Flow> = sent.flows.iter().cloned().collect();
        if !sends.is_empty() {
            let place = Text::hole(Hole::Value);
            self.tell(given.span, Fact::Contacts { place, contact: Contact::Send, sends });
        }
    }

    /// What of the machine's own something carries: contents, or files by their paths.
    fn carried(&self, held: &Held, deep: usize, sent: &mut Value) {
        if self.is_the_environment(held) || held.flows.iter().any(|flow| *flow == Flow::Environment) {
            sent.flows.add(&Flow::Environment);
        }
        for flow in held.flows.iter() {
            if let Flow::File { path } = flow
                && self.is_not_the_projects(&Text::known(path.as_str()))
            {
                sent.flows.add(flow);
            }
        }
        for text in held.texts.iter().filter(|text| text.known_start().len() < 4096) {
            let begins = text.known_start().starts_with(['/', '~']) || text.to_string().starts_with("$HOME/");
            if begins && self.is_not_the_projects(text) {
                sent.flows.add(&Flow::File { path: text.to_string() });
            }
        }
        if deep == 0 {
            return;
        }
        for (key, field) in held.fields.iter().flat_map(|fields| fields.iter().take(16)) {
            if !WHO.contains(&&**key) {
                self.carried(field, deep - 1, sent);
            }
        }
        for item in held.items.iter().flat_map(|items| items.iter().take(16)) {
            self.carried(item, deep - 1, sent);
        }
    }

    fn is_not_the_projects(&self, path: &Text) -> bool {
        let classes = classify(path, self.reading.surroundings);
        let own = |class: &PathClass| {
            matches!(class, PathClass::Workspace | PathClass::WholeWorkspace | PathClass::Temporary)
        };
        let others = |class: &PathClass| {
            matches!(class, PathClass::Secret | PathClass::SystemSettings | PathClass::WholeHome | PathClass::Traces)
        };
        classes.iter().any(others) && !classes.iter().any(own)
    }
}
