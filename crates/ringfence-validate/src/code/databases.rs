//! Libraries that speak to databases: which of them is somebody else's, and what is destroyed there.

use std::rc::Rc;

use super::call::{Given, Place};
use super::hosts::{LIVE, Side, UNCLEAR, hosts_of, says_live, side};
use super::quick::{Listed, listed};
use super::role::Slot;
use super::value::{Held, Value};
use super::walk::Walk;
use crate::analysis::{Contact, Fact, Flow, SystemAct, Unknown};
use crate::text::{Hole, Piece, Text};

/// The databases that a program speaks to, as an attribute that no program has.
const PLACES: &str = "(databases)";

static MODULES: Listed = Listed::new(|| {
    listed(&[
        "psycopg2",
        "psycopg",
        "asyncpg",
        "aiopg",
        "pymysql",
        "aiomysql",
        "MySQLdb",
        "mysql",
        "mysql2",
        "mariadb",
        "pg",
        "pg-promise",
        "postgres",
        "slonik",
        "knex",
        "sequelize",
        "typeorm",
        "sqlalchemy",
        "databases",
        "peewee",
        "pymongo",
        "motor",
        "mongodb",
        "mongoose",
        "redis",
        "ioredis",
        "oracledb",
        "cx_Oracle",
        "pyodbc",
        "pymssql",
        "mssql",
        "clickhouse_driver",
        "clickhouse_connect",
        "cassandra",
        "neo4j",
        "elasticsearch",
        "@elastic/elasticsearch",
        "snowflake",
        "@prisma/client",
        "aioredis",
        "valkey",
        "handy-redis",
        "asyncmy",
        "tortoise",
        "sqlmodel",
        "mongoengine",
        "beanie",
        "opensearchpy",
        "@opensearch-project/opensearch",
        "arango",
        "couchdb",
        "nano",
        "couchbase",
        "rethinkdb",
        "pg-pool",
        "@databases/pg",
        "serverless-mysql",
        "tedious",
        "drizzle-orm",
        "objection",
        "bookshelf",
        "@mikro-orm/core",
        "waterline",
        "monk",
        "mongojs",
        "cassandra-driver",
        "neo4j-driver",
        "@clickhouse/client",
        "snowflake-sdk",
        "influxdb",
        "memcached",
        "pymemcache",
        "@neondatabase/serverless",
        "@planetscale/database",
        "@upstash/redis",
        "@google-cloud/bigquery",
        "@google-cloud/spanner",
        "@google-cloud/firestore",
        "pinecone",
        "@pinecone-database/pinecone",
        "kafkajs",
        "kafka",
        "confluent_kafka",
        "aiokafka",
        "amqplib",
        "pika",
        "aio_pika",
    ])
});

/// Those of them that speak to somebody's service and to nothing on this machine.
const HOSTED: &[&str] = &[
    "@neondatabase/serverless",
    "@planetscale/database",
    "@upstash/redis",
    "@google-cloud/bigquery",
    "@google-cloud/spanner",
    "@google-cloud/firestore",
    "pinecone",
    "@pinecone-database/pinecone",
    "snowflake-sdk",
];

/// Methods that are given a text of SQL.
const ASKS: &[&str] = &[
    "execute",
    "executemany",
    "exec_driver_sql",
    "query",
    "raw",
    "unsafe",
    "exec",
    "run",
    "none",
    "any",
    "fetch",
    "$executeRawUnsafe",
    "$queryRawUnsafe",
    "command",
    "batch",
    "multi",
    "execute_sync",
    "executeQuery",
    "executeSql",
    "executeRaw",
    "$executeRaw",
    "$queryRaw",
    "text",
    "sql",
];

/// Methods that destroy a whole database, or all of its tables: in small letters, without what joins words.
const DROPS: &[&str] = &[
    "dropdatabase",
    "flushall",
    "flushdb",
    "dropall",
    "dropallobjects",
    "dropalltables",
    "droptables",
    "deleteindex",
    "droptable",
    "droptableifexists",
    "dropschema",
    "dropschemaifexists",
    "dropcollection",
    "dropkeyspace",
    "dropindices",
    "purgequeue",
    "queuepurge",
    "deletetopics",
    "deletetopicrecords",
    "recursivedelete",
    "deletetable",
    "deletedatabase",
    "deletebyquery",
    "deleteall",
    "truncate",
    "truncatetables",
    "emptytable",
    "cleardatabase",
    "refreshdatabase",
    "dropmodel",
];

/// Methods that remove what a condition says, and everything where none is given.
const CLEARS: &[&str] = &["deletemany", "remove", "del", "delete", "destroy", "drop", "flush", "clear", "removemany"];

/// What leaves the database, or starts something where it runs.
const LEAVES: &[&str] = &[
    " program ",
    "xp_cmdshell",
    "pg_read_file",
    "pg_read_binary_file",
    "pg_ls_dir",
    "lo_import",
    "lo_export",
    "load_file",
    "into outfile",
    "into dumpfile",
    "sys_exec",
    "sys_eval",
    "load_extension",
    "infile",
];

/// The module that a full name begins with.
pub(super) fn module_of(name: &str) -> &str {
    let whole = name.split('(').next().unwrap_or(name);
    // A module of somebody has two parts.
    let first = if whole.starts_with('@') { whole.find('/').map_or(0, |slash| slash + 1) } else { 0 };
    let rest = whole.get(first..).unwrap_or_default();
    let end = rest.find(['.', '/']).map_or(whole.len(), |end| first + end);
    whole.get(..end).unwrap_or(whole)
}

/// Whether something comes of a library that speaks to a database.
pub(super) fn is_of_a_database(name: &str) -> bool {
    MODULES.contains(module_of(name))
}

impl Walk<'_, '_> {
    /// A call of a library that speaks to a database.
    pub(super) fn by_database(&mut self, name: &str, given: &Given) {
        if !is_of_a_database(name) {
            return;
        }
        self.note_places(name, given);
        let method = name.rsplit('.').next().unwrap_or(name);
        let plain: String = method.chars().filter(|sign| *sign != '_').collect::<String>().to_ascii_lowercase();
        let set = |key: &'static str| given.slot(&Slot::Named(key)).is_some_and(|(set, _)| set.truth == Some(true));
        let index = name.ends_with("indices.delete")
            || method == "sync" && set("force")
            || method == "synchronize" && given.args.first().is_some_and(|first| first.truth == Some(true))
            || method == "DataSource" && set("dropSchema");
        if (DROPS.contains(&plain.as_str()) || index || clears(name, &plain, given)) && self.is_elsewhere(name) {
            self.destroys(method, given);
        }
        self.commands(given, name);
        if ASKS.contains(&method)
            && let Some(text) = given.args.first()
        {
            for text in text.texts.clone().iter() {
                self.asks(text, given, name);
            }
        }
    }

    /// Commands that a client is given as words, or as an object that names one.
    fn commands(&mut self, given: &Given, name: &str) {
        let destroys = |word: &str| {
            matches!(word.to_ascii_lowercase().as_str(), "flushall" | "flushdb" | "dropdatabase" | "drop_database")
        };
        let said = |arg: &Held| {
            let items = arg.items.iter().flat_map(|items| items.iter().take(2));
            let words = std::iter::once(arg).chain(items).filter_map(|word| word.as_known());
            let keys = arg.fields.iter().flat_map(|fields| fields.iter().take(4)).map(|(key, _)| &**key);
            words.chain(keys).any(destroys)
        };
        if given.args.iter().take(2).any(said) && self.is_elsewhere(name) {
            self.destroys("all keys", given);
        }
    }

    /// Where the databases are, as far as the calls say it.
    fn note_places(&mut self, name: &str, given: &Given) {
        const CLIENTS: &[&str] = &["Redis", "StrictRedis", "ioredis", "Elasticsearch", "MongoClient", "Cluster"];
        let is_client = CLIENTS.contains(&name.trim_end_matches("()").rsplit('.').next().unwrap_or(name));
        const KEYS: &[&str] = &[
            "host",
            "hostname",
            "url",
            "uri",
            "connectionString",
            "dsn",
            "server",
            "servers",
            "hosts",
            "node",
            "connection",
            "datasourceUrl",
            "connectionUri",
            "connectUrl",
            "dbUrl",
            "database_url",
            "databaseUrl",
            "contactPoints",
            "brokers",
            "bootstrap_servers",
            "bootstrap.servers",
            "endpoint",
            "cluster",
        ];
        let mut places = Value::default();
        // Words of a list that are tried one by one.
        let mut secrets = Value::default();
        let is_password = |key: &str| matches!(key, "password" | "passwd" | "pass" | "auth" | "pwd");
        let mut take = |held: &Held, is_host: bool| {
            let items = held.items.iter().flat_map(|items| items.iter()).flat_map(|item| item.texts.iter());
            for text in held.texts.iter().chain(items) {
                hosts_of(&written(text, UNCLEAR), is_host).into_iter().for_each(|host| places.add(&Value::known(host)));
            }
        };
        // What is called so is nobody's own.
        let is_live =
            |held: &Held| held.texts.iter().any(|text| text.as_known().is_none() && says_live(&text.to_string()));
        for arg in &given.args {
            if is_live(arg) {
                take(&Rc::new(Value::known(LIVE)), true);
            }
            let is_host =
                |text: &Text| text.as_known().is_some_and(|host| host.contains('.') && !host.contains(['/', ' ', '(']));
            take(arg, is_client && arg.texts.iter().any(is_host));
            let mut within: Vec<(Held, usize)> = vec![(Rc::clone(arg), 0)];
            while let Some((object, deep)) = within.pop() {
                for (key, field) in object.fields.iter().flat_map(|fields| fields.iter().take(16)) {
                    if is_password(key) {
                        secrets.flows.add_all(&field.flows);
                    }
                    if KEYS.contains(&&**key) {
                        take(field, true);
                        if is_live(field) {
                            take(&Rc::new(Value::known(LIVE)), true);
                        }
                    }
                    if deep < 2 {
                        within.push((Rc::clone(field), deep + 1));
                    }
                }
            }
        }
        for (key, held, _) in &given.named {
            if is_password(key) {
                secrets.flows.add_all(&held.flows);
            }
        }
        for (key, held, _) in given.named.iter().filter(|(key, _, _)| KEYS.contains(&key.as_str())) {
            take(held, key != "url");
            if is_live(held) {
                take(&Rc::new(Value::known(LIVE)), true);
            }
        }
        let tried: Vec<Flow> = secrets.flows.iter().filter(|flow| matches!(flow, Flow::File { .. })).cloned().collect();
        if !tried.is_empty() {
            let place = places.texts.first().cloned().unwrap_or_else(|| Text::hole(Hole::Value));
            self.tell(given.span, Fact::Contacts { place, contact: Contact::Shell, sends: tried });
        }
        if !places.texts.is_empty() {
            self.scopes.set_attribute(PLACES, &Rc::new(places));
        }
    }

    fn hosts(&mut self) -> Vec<String> {
        let held = self.scopes.attribute(PLACES);
        held.iter().flat_map(|held| held.texts.iter()).map(ToString::to_string).collect()
    }

    /// Whether one of the databases is known to be on another machine.
    fn is_elsewhere(&mut self, name: &str) -> bool {
        HOSTED.contains(&module_of(name)) || self.hosts().iter().any(|host| side(host) == Side::Far)
    }

    fn is_here(&mut self) -> bool {
        let hosts = self.hosts();
        !hosts.is_empty() && hosts.iter().all(|host| side(host) == Side::Near)
    }

    /// A text of SQL is carried out.
    fn asks(&mut self, text: &Text, given: &Given, name: &str) {
        let known = written(text, "?");
        if known.len() > 64 * 1024 {
            self.tell(given.span, Fact::Unknown { unknown: Unknown::TooMuch { bound: "sql" } });
            return;
        }
        // Servers do not agree on where a text ends and a remark begins: either may be what is carried out.
        let lower = [known.clone(), without_remarks(&known)]
            .map(|sql| sql.split_whitespace().collect::<Vec<_>>().join(" ").to_ascii_lowercase());
        if LEAVES.iter().any(|word| lower.iter().any(|sql| sql.contains(word))) {
            // What a client would do with it says the same.
            let place = Place { span: given.span, literal: None };
            let words = vec![Rc::new(Value::known("-c")), Rc::new(Value::known(known.as_str()))];
            let alone = Given { span: given.span, ..Given::default() };
            self.program(Some((Rc::new(Value::known("psql")), place)), Some(words), &alone);
        }
        for part in lower.iter().flat_map(|sql| sql.split(';')).map(str::trim) {
            let part = part.trim_start_matches('(');
            let whole = part.starts_with("drop database")
                || part.starts_with("drop owned")
                || part.starts_with("drop schema") && part.contains("cascade")
                || part.starts_with("drop user")
                || part.starts_with("drop role");
            let tables = part.starts_with("drop table")
                || part.starts_with("truncate")
                || part.starts_with("drop tablespace")
                || part.starts_with("delete from") && !part.contains(" where ")
                || part.contains("detach delete") && !part.contains(" where ")
                || part.starts_with("flushall");
            let each = tables && part.contains('?') && part.starts_with("drop table");
            let elsewhere = self.is_elsewhere(name);
            if whole && (elsewhere || (!self.is_here() && !is_tried(part)))
                || tables && elsewhere
                || each && !self.is_here()
            {
                self.destroys(part, given);
                return;
            }
        }
    }

    pub(super) fn destroys(&mut self, what: &str, given: &Given) {
        let about = Text::known(what.chars().take(80).collect::<String>());
        self.tell(given.span, Fact::System { act: SystemAct::Records, about });
    }
}

/// Whether a call removes everything: by a method that takes a condition, and without one.
fn clears(name: &str, plain: &str, given: &Given) -> bool {
    let is_all = |arg: &Held| {
        arg.fields.as_ref().is_some_and(|fields| {
            fields.is_empty()
                || fields.iter().all(|(key, _)| {
                    let nothing =
                        || arg.field("where").is_some_and(|all| all.fields.as_ref().is_none_or(|all| all.is_empty()));
                    matches!(&**key, "truncate" | "cascade" | "force") || &**key == "where" && nothing()
                })
        })
    };
    // What was chosen before is not everything, and neither is what is asked of a file or a row.
    let chosen = [".where", ".filter", ".find", ".limit", ".match", ".first", ".get(", ".query("]
        .iter()
        .any(|word| name.to_ascii_lowercase().contains(word));
    // All keys that there are, as the client listed them.
    let listed = |arg: &Held| arg.names.iter().any(|name| name.contains(".keys("));
    if matches!(plain, "del" | "delete" | "unlink") && given.args.iter().any(listed) {
        return true;
    }
    let whole = match plain {
        "drop" => given.args.iter().all(|arg| arg.texts.is_empty()),
        "remove" | "del" | "delete" | "destroy" | "flush" | "clear" => {
            given.args.first().is_some_and(is_all)
                || (plain == "del" || plain == "delete")
                    && given.args.is_empty()
                    && name.contains("()")
                    && name.starts_with("knex")
        }
        _ => given.args.first().is_none_or(is_all),
    };
    CLEARS.contains(&plain) && whole && (!chosen || plain == "drop") && given.named.is_empty()
}

/// A text with a sign in the place of what is not known.
fn written(text: &Text, unknown: &str) -> String {
    let piece = |piece: &Piece| match piece {
        Piece::Known(known) | Piece::Pattern(known) => known.clone(),
        Piece::Hole(_) => unknown.to_owned(),
    };
    text.pieces().iter().map(piece).collect()
}

/// SQL without what is written for people; what only some servers skip is left.
fn without_remarks(sql: &str) -> String {
    let mut bare = String::with_capacity(sql.len());
    let mut rest = sql;
    while let Some(at) = rest.find(['-', '/', '\'', '"', '`']) {
        let (before, found) = rest.split_at(at);
        bare.push_str(before);
        let skipped = if found.starts_with("--") {
            found.find('\n').unwrap_or(found.len())
        } else if found.starts_with("/*") && !found.starts_with("/*!") {
            found.get(2..).and_then(|inside| inside.find("*/")).map_or(found.len(), |end| end + 4)
        } else {
            // A name or a text in quotes stays whole.
            let sign = found.chars().next().unwrap_or_default();
            let inside = found.get(1..).unwrap_or_default();
            let quoted = if matches!(sign, '-' | '/') { None } else { inside.find(sign) };
            let end = quoted.map_or(1, |end| end + 2);
            bare.push_str(found.get(..end).unwrap_or_default());
            rest = found.get(end..).unwrap_or_default();
            continue;
        };
        bare.push(' ');
        rest = found.get(skipped..).unwrap_or_default();
    }
    bare + rest
}

/// Whether all that a command drops is called like something to try things out with.
fn is_tried(part: &str) -> bool {
    let names = part.split_whitespace().skip(2).filter(|word| !matches!(*word, "if" | "exists" | "by"));
    let names: Vec<&str> = names.take_while(|word| !matches!(*word, "cascade" | "with" | "restrict")).collect();
    let is_one = |name: &str| ["test", "tmp", "temp", "_dev", "scratch"].iter().any(|word| name.contains(word));
    let names = names.join(" ");
    !names.is_empty() && names.split(',').all(is_one)
}

#[cfg(test)]
mod tests {
    use crate::code::told::facts;
    use crate::language::Language;

    fn is_destroyed(source: &str) -> bool {
        facts(Language::Python, source).iter().any(|line| line.starts_with("system Records"))
    }

    #[test]
    fn a_whole_database_is_dropped_unless_it_is_near_or_its_own_name_says_that_it_is_tried() {
        let at =
            |url: &str, sql: &str| format!("import psycopg2\nc = psycopg2.connect({url}).cursor()\nc.execute({sql:?})");
        for (url, sql) in [
            ("f\"postgresql://{u}:{p}@{h}/app\"", "drop database prod"),
            ("f\"postgresql://{u}@{h}/app\"", "drop schema public cascade"),
            ("host=h", "drop database prod; -- test"),
            ("host=h", "drop database prod -- test"),
            ("host=h", "/* test */ drop database prod"),
            ("host=h", "drop database test, prod"),
            ("host=h", "select '\\' -- '; drop database prod"),
            ("\"postgresql://u@[2001:db8::7]/test\"", "drop database test"),
        ] {
            assert!(is_destroyed(&at(url, sql)), "{url} {sql}");
        }
        for (url, sql) in [
            ("\"postgresql://u:p@localhost/app\"", "drop database prod"),
            ("\"postgresql://u@[::1]/app\"", "drop schema public cascade"),
            ("f\"postgresql://{u}:{p}@{h}/app\"", "drop database if exists app_test"),
            ("host=h", "select 'drop database prod'; -- test"),
            ("host=h", "drop database test -- prod"),
        ] {
            assert!(!is_destroyed(&at(url, sql)), "{url} {sql}");
        }
    }

    #[test]
    fn what_is_named_after_production_is_somebody_elses_however_it_is_handed_over() {
        let destroyed =
            |source: &str| facts(Language::JavaScript, source).iter().any(|line| line.starts_with("system Records"));
        for source in [
            "const { MongoClient } = require('mongodb'); (await MongoClient.connect(process.env.MONGO_PROD_URI)).db().dropDatabase()",
            "const db = require('knex')({ client: 'pg', connection: process.env.PROD_URL }); db.schema.dropTable('a')",
            "const { PrismaClient } = require('@prisma/client'); const p = new PrismaClient({ datasources: { db: { url: process.env.LIVE_DB } } }); p[m].deleteMany()",
            "const r = new (require('ioredis'))('redis://prod-cache:6379'); r.call('FLUSHALL')",
            "const c = new (require('mongodb').MongoClient)('mongodb://a.corp.example'); for (const a of await c.db().collections()) a.drop()",
        ] {
            assert!(destroyed(source), "{source}");
        }
        for source in [
            "const { MongoClient } = require('mongodb'); (await MongoClient.connect(process.env.PRODUCT_URI)).db().dropDatabase()",
            "const p = new (require('@prisma/client').PrismaClient)({ datasourceUrl: process.env.LIVE_DB }); p.user.deleteMany({ where: { id: 1 } })",
            "const r = new (require('ioredis'))('redis://prod-cache:6379'); r.call('JSON.GET', 'a'); r.del('a')",
            "const db = require('knex')({ connection: process.env.PROD_URL }); db('a').where('id', 1).del()",
        ] {
            assert!(!destroyed(source), "{source}");
        }
    }

    #[test]
    fn sql_that_is_too_long_is_told() {
        let long = |length: usize| {
            let source =
                format!("import psycopg2\npsycopg2.connect().cursor().execute('select {}')", "a".repeat(length));
            facts(Language::Python, &source).contains(&"too much: sql".to_owned())
        };
        assert!(long(65 * 1024) && !long(1024));
    }
}
