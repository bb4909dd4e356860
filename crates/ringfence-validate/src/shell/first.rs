//! The parser whose tree is walked: brush-parser. Only its uncached entry points are used, and nothing of its words: those are read here.

use std::cell::Cell;
use std::rc::Rc;

use brush_parser::ast::{self, SourceLocation};
use brush_parser::{Parser, ParserOptions, SourceSpan};

use super::second::chosen_from;
use super::tree::{Arm, Node, Place, Redirect, RedirectKind, Simple, Sum, Target, Then, Turns, Word};
use crate::span::Span;

/// Parses `text`, or says why not. The parser knows no `select`: where the other one found them (`selects`, in characters), it is
/// given a `for` of the same length. What differs otherwise, the comparison finds.
pub(super) fn parse(text: &str, selects: &[usize]) -> Result<Node, String> {
    let too_many = "too many brackets behind names that are not closed";
    let mut changed = (!selects.is_empty()).then(|| with_for(text, selects));
    let mut covered = 0;
    if super::brackets::takes_too_long(text) {
        // What stands in a quoted here-document is nobody's word: the parser need not try its brackets.
        let bare = super::brackets::covered(changed.as_deref().unwrap_or(text)).ok_or(too_many)?;
        if super::brackets::takes_too_long(&bare) {
            return Err(too_many.to_owned());
        }
        covered = bare.matches(super::brackets::COVER).count();
        changed = Some(bare);
    }
    let shown = super::pending::with_room(changed.as_deref().unwrap_or(text))?;
    let mut parser = Parser::new(shown.as_bytes(), &ParserOptions::default());
    let program = parser.parse_program().map_err(|error| error.to_string())?;
    let source = Source::new(text);
    let mut items = Vec::new();
    for complete in &program.complete_commands {
        source.push_list(complete, &mut items).ok_or("a form that is not known")?;
    }
    if source.uncovered.get() != covered {
        // Some of them stood elsewhere for the parser: it did not read what is written.
        return Err(too_many.to_owned());
    }
    Ok(Node::List(items))
}

const SELECT: &str = "select";

/// The text with `for` in the place of each `select`.
fn with_for(text: &str, selects: &[usize]) -> String {
    let source = Source::new(text);
    let mut changed = String::with_capacity(text.len());
    let mut starts: Vec<usize> = selects.iter().map(|at| source.byte(*at)).collect();
    starts.sort_unstable();
    let mut done = 0;
    for start in starts {
        if let (Some(before), Some(rest)) = (text.get(done..start), text.get(start..))
            && rest.starts_with(SELECT)
        {
            changed.push_str(before);
            changed.push_str("for   ");
            done = start + SELECT.len();
        }
    }
    changed.push_str(text.get(done..).unwrap_or_default());
    changed
}

/// The text, with its characters counted: the parser counts characters, places are bytes.
struct Source<'a> {
    text: &'a str,
    /// The byte at which each character starts; nothing where each is one byte.
    starts: Option<Vec<usize>>,
    /// Brackets in here-documents that were covered for the parser, and are there again.
    uncovered: Cell<usize>,
}

impl<'a> Source<'a> {
    fn new(text: &'a str) -> Self {
        let starts = (!text.is_ascii()).then(|| text.char_indices().map(|(at, _)| at).collect());
        Self { text, starts, uncovered: Cell::new(0) }
    }

    fn byte(&self, character: usize) -> usize {
        match &self.starts {
            None => character.min(self.text.len()),
            Some(starts) => starts.get(character).copied().unwrap_or(self.text.len()),
        }
    }

    fn span(&self, span: &SourceSpan) -> Span {
        let start = self.byte(span.start.index);
        Span::new(start, self.byte(span.end.index).max(start))
    }

    fn place(&self, span: Option<SourceSpan>) -> Place {
        Place(span.map(|span| self.span(&span)).unwrap_or_default())
    }

    /// The word as it stands in the text: the tokenizer changes blanks within substitutions.
    fn word(&self, word: &ast::Word) -> Word {
        let Some(location) = &word.loc else { return Word { raw: word.value.clone(), at: 0 } };
        let span = self.span(location);
        // Behind a continued line or a here-document the place starts too early: no word starts with a blank.
        let mut start = span.start;
        while let Some(rest) = self.text.get(start..span.end) {
            match rest.as_bytes() {
                [b'\\', b'\n', ..] => start += 2,
                [b' ' | b'\t' | b'\n', ..] => start += 1,
                _ => break,
            }
        }
        match self.text.get(start..span.end) {
            Some(raw) if !raw.is_empty() => Word { raw: super::word::joined(raw), at: start },
            _ => Word { raw: word.value.clone(), at: span.start },
        }
    }

    fn words(&self, words: &[ast::Word]) -> Vec<Word> {
        words.iter().map(|word| self.word(word)).collect()
    }

    /// `<(…)` as a word: the bracket's place is known, the sign stands before it.
    fn process(&self, subshell: &ast::SubshellCommand) -> Option<Word> {
        let span = self.span(&subshell.loc);
        let start = span.start.checked_sub(1)?;
        Some(Word { raw: self.text.get(start..span.end)?.to_owned(), at: start })
    }

    fn list(&self, list: &ast::CompoundList) -> Option<Node> {
        let mut items = Vec::new();
        self.push_list(list, &mut items)?;
        Some(Node::List(items))
    }

    fn boxed(&self, list: &ast::CompoundList) -> Option<Box<Node>> {
        self.list(list).map(Box::new)
    }

    fn push_list(&self, list: &ast::CompoundList, items: &mut Vec<(Node, Then)>) -> Option<()> {
        for ast::CompoundListItem(and_or, separator) in &list.0 {
            let mut pipelines = vec![&and_or.first];
            let mut joins = Vec::new();
            for next in &and_or.additional {
                match next {
                    ast::AndOr::And(pipeline) => {
                        joins.push(Then::And);
                        pipelines.push(pipeline);
                    }
                    ast::AndOr::Or(pipeline) => {
                        joins.push(Then::Or);
                        pipelines.push(pipeline);
                    }
                }
            }
            joins.push(match separator {
                ast::SeparatorOperator::Async => Then::Background,
                ast::SeparatorOperator::Sequence => Then::Next,
            });
            for (pipeline, then) in pipelines.into_iter().zip(joins) {
                items.push((self.pipeline(pipeline)?, then));
            }
        }
        Some(())
    }

    fn pipeline(&self, pipeline: &ast::Pipeline) -> Option<Node> {
        match pipeline.seq.as_slice() {
            [] => Some(Node::Nothing),
            [command] => self.command(command),
            commands => {
                let place = self.place(pipeline.location());
                Some(Node::Pipeline(
                    commands.iter().map(|command| self.command(command)).collect::<Option<_>>()?,
                    place,
                ))
            }
        }
    }

    fn command(&self, command: &ast::Command) -> Option<Node> {
        match command {
            ast::Command::Simple(simple) => self.simple(simple).map(Node::Simple),
            ast::Command::Compound(compound, redirects) => self.compound(compound, self.redirects(redirects.as_ref())?),
            ast::Command::Function(function) => Some(Node::Function {
                name: function.fname.value.clone(),
                body: Rc::new(self.compound(&function.body.0, self.redirects(function.body.1.as_ref())?)?),
                place: self.place(function.location()),
            }),
            ast::Command::ExtendedTest(test, redirects) => {
                let mut words = Vec::new();
                self.test_words(&test.expr, &mut words);
                let place = self.place(Some(test.loc.clone()));
                Some(Node::Test { words, redirects: self.redirects(redirects.as_ref())?, place })
            }
        }
    }

    fn simple(&self, simple: &ast::SimpleCommand) -> Option<Simple> {
        let mut found = Simple { place: self.place(simple.location()), ..Simple::default() };
        for item in simple.prefix.iter().flat_map(|prefix| &prefix.0) {
            match item {
                ast::CommandPrefixOrSuffixItem::IoRedirect(redirect) => {
                    let variable = self.take_variable(&mut found.words);
                    found.redirects.push(Redirect { variable, ..self.redirect(redirect)? });
                }
                ast::CommandPrefixOrSuffixItem::AssignmentWord(_, word) => found.assignments.push(self.word(word)),
                ast::CommandPrefixOrSuffixItem::Word(word) => found.words.push(self.word(word)),
                ast::CommandPrefixOrSuffixItem::ProcessSubstitution(_, subshell) => {
                    found.words.push(self.process(subshell)?);
                }
            }
        }
        found.words.extend(simple.word_or_name.iter().map(|word| self.word(word)));
        for item in simple.suffix.iter().flat_map(|suffix| &suffix.0) {
            match item {
                ast::CommandPrefixOrSuffixItem::IoRedirect(redirect) => {
                    let variable = self.take_variable(&mut found.words);
                    found.redirects.push(Redirect { variable, ..self.redirect(redirect)? });
                }
                ast::CommandPrefixOrSuffixItem::AssignmentWord(_, word)
                | ast::CommandPrefixOrSuffixItem::Word(word) => {
                    found.words.push(self.word(word));
                }
                ast::CommandPrefixOrSuffixItem::ProcessSubstitution(_, subshell) => {
                    found.words.push(self.process(subshell)?);
                }
            }
        }
        Some(found)
    }

    /// The parser takes the `{name}` of `{name}>file` for a word: it is none where the sign follows at once.
    fn take_variable(&self, words: &mut Vec<Word>) -> Option<String> {
        let last = words.last()?;
        let name = last.raw.strip_prefix('{')?.strip_suffix('}')?;
        let starts = name.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_');
        let plain = starts && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let follows = self.text.get(last.at + last.raw.len()..)?.starts_with(['<', '>']);
        if !plain || !follows {
            return None;
        }
        let name = name.to_owned();
        words.pop();
        Some(name)
    }

    fn compound(&self, compound: &ast::CompoundCommand, redirects: Vec<Redirect>) -> Option<Node> {
        let place = self.place(compound.location());
        Some(match compound {
            ast::CompoundCommand::Arithmetic(arithmetic) => {
                Node::Arithmetic { text: Sum(arithmetic.expr.value.clone()), redirects, place }
            }
            ast::CompoundCommand::ArithmeticForClause(clause) => Node::ForArithmetic {
                parts: [&clause.initializer, &clause.condition, &clause.updater]
                    .map(|part| Sum(part.as_ref().map(|part| part.value.clone()).unwrap_or_default()))
                    .to_vec(),
                body: self.boxed(&clause.body.list)?,
                redirects,
                place,
            },
            ast::CompoundCommand::BraceGroup(group) => {
                Node::Group { subshell: false, body: self.boxed(&group.list)?, redirects, place }
            }
            ast::CompoundCommand::Subshell(group) => {
                Node::Group { subshell: true, body: self.boxed(&group.list)?, redirects, place }
            }
            ast::CompoundCommand::ForClause(clause) if self.begins_with_select(place) => Node::For {
                turns: Turns::Chosen,
                variable: clause.variable_name.clone(),
                words: chosen_from(clause.values.as_ref().map(|words| self.words(words)).unwrap_or_default()),
                body: self.boxed(&clause.body.list)?,
                redirects,
                place,
            },
            ast::CompoundCommand::ForClause(clause) => Node::For {
                turns: Turns::InOrder,
                variable: clause.variable_name.clone(),
                words: chosen_from(clause.values.as_ref().map(|words| self.words(words)).unwrap_or_default()),
                body: self.boxed(&clause.body.list)?,
                redirects,
                place,
            },
            ast::CompoundCommand::CaseClause(clause) => Node::Case {
                word: self.word(&clause.value),
                arms: clause
                    .cases
                    .iter()
                    .map(|case| {
                        let body = match &case.cmd {
                            Some(list) => Some(self.list(list)?),
                            None => None,
                        };
                        let arm = match case.post_action {
                            ast::CaseItemPostAction::ExitCase => Arm::Ends,
                            ast::CaseItemPostAction::UnconditionallyExecuteNextCaseItem
                            | ast::CaseItemPostAction::ContinueEvaluatingCases => Arm::GoesOn,
                        };
                        Some((self.words(&case.patterns), body, arm))
                    })
                    .collect::<Option<_>>()?,
                redirects,
                place,
            },
            ast::CompoundCommand::IfClause(clause) => self.if_clause(clause, redirects, place)?,
            ast::CompoundCommand::WhileClause(clause) | ast::CompoundCommand::UntilClause(clause) => {
                Node::While { condition: self.boxed(&clause.0)?, body: self.boxed(&clause.1.list)?, redirects, place }
            }
            ast::CompoundCommand::Coprocess(process) => {
                let name = process.name.as_ref().map_or("COPROC", |name| name.value.as_str()).to_owned();
                Node::Coprocess { name, body: Rc::new(self.command(&process.body)?) }
            }
        })
    }

    fn begins_with_select(&self, place: Place) -> bool {
        self.text.get(place.0.start..).is_some_and(|rest| rest.trim_start().starts_with(SELECT))
    }

    fn if_clause(&self, clause: &ast::IfClauseCommand, redirects: Vec<Redirect>, place: Place) -> Option<Node> {
        let mut arms = vec![(self.list(&clause.condition)?, self.list(&clause.then)?)];
        let mut otherwise = None;
        for next in clause.elses.iter().flatten() {
            match &next.condition {
                Some(condition) => arms.push((self.list(condition)?, self.list(&next.body)?)),
                None => otherwise = Some(self.list(&next.body)?),
            }
        }
        // The other parser cannot tell `else if … fi` from `elif`: this one takes its form.
        while let Some(Node::List(items)) = &otherwise {
            let [(Node::If { redirects, .. }, _)] = items.as_slice() else { break };
            if !redirects.is_empty() {
                break;
            }
            let Some(Node::List(mut items)) = otherwise.take() else { break };
            let Some((Node::If { arms: inner, otherwise: rest, .. }, _)) = items.pop() else { break };
            arms.extend(inner);
            otherwise = rest.map(|rest| *rest);
        }
        Some(Node::If { arms, otherwise: otherwise.map(Box::new), redirects, place })
    }

    fn redirects(&self, list: Option<&ast::RedirectList>) -> Option<Vec<Redirect>> {
        list.iter().flat_map(|list| &list.0).map(|redirect| self.redirect(redirect)).collect()
    }

    fn redirect(&self, redirect: &ast::IoRedirect) -> Option<Redirect> {
        Some(match redirect {
            ast::IoRedirect::File(descriptor, kind, target) => {
                let kind = match kind {
                    ast::IoFileRedirectKind::Read => RedirectKind::Read,
                    ast::IoFileRedirectKind::Write | ast::IoFileRedirectKind::Clobber => RedirectKind::Write,
                    ast::IoFileRedirectKind::Append => RedirectKind::Append,
                    ast::IoFileRedirectKind::ReadAndWrite => RedirectKind::ReadWrite,
                    ast::IoFileRedirectKind::DuplicateInput => RedirectKind::DuplicateInput,
                    ast::IoFileRedirectKind::DuplicateOutput => RedirectKind::DuplicateOutput,
                };
                let target = match target {
                    ast::IoFileRedirectTarget::Filename(word) | ast::IoFileRedirectTarget::Duplicate(word) => {
                        self.word(word)
                    }
                    ast::IoFileRedirectTarget::Fd(descriptor) => Word { raw: descriptor.to_string(), at: 0 },
                    ast::IoFileRedirectTarget::ProcessSubstitution(_, subshell) => self.process(subshell)?,
                };
                Redirect { descriptor: *descriptor, variable: None, kind, target: Target::Word(target) }
            }
            ast::IoRedirect::HereDocument(descriptor, document) => Redirect {
                variable: None,
                descriptor: *descriptor,
                kind: RedirectKind::HereDocument,
                target: Target::Document {
                    body: self.body(&document.doc.value, document.requires_expansion),
                    expands: document.requires_expansion,
                    at: self.place(document.doc.loc.clone()),
                },
            },
            ast::IoRedirect::HereString(descriptor, word) => Redirect {
                variable: None,
                descriptor: *descriptor,
                kind: RedirectKind::HereString,
                target: Target::Word(self.word(word)),
            },
            ast::IoRedirect::OutputAndError(word, _) => Redirect {
                descriptor: None,
                variable: None,
                kind: RedirectKind::Both,
                target: Target::Word(self.word(word)),
            },
        })
    }

    /// The body of a here-document as it is written.
    fn body(&self, body: &str, expands: bool) -> String {
        let covered = if expands { 0 } else { body.matches(super::brackets::COVER).count() };
        if covered == 0 {
            return body.to_owned();
        }
        self.uncovered.set(self.uncovered.get() + covered);
        body.replace(super::brackets::COVER, "[")
    }

    /// The operands of a test, in order.
    fn test_words(&self, expression: &ast::ExtendedTestExpr, words: &mut Vec<Word>) {
        match expression {
            ast::ExtendedTestExpr::And(left, right) | ast::ExtendedTestExpr::Or(left, right) => {
                self.test_words(left, words);
                self.test_words(right, words);
            }
            ast::ExtendedTestExpr::Not(inner) | ast::ExtendedTestExpr::Parenthesized(inner) => {
                self.test_words(inner, words)
            }
            ast::ExtendedTestExpr::UnaryTest(_, word) => words.push(self.word(word)),
            ast::ExtendedTestExpr::BinaryTest(_, left, right) => words.extend([self.word(left), self.word(right)]),
        }
    }
}
