//! Sync of two clones of a state directory through git: commits are fetched, merged, checked and
//! pushed, and only then applied to the records of this clone.
//!
//! Because of this order, a sync may be killed at any time. A merge creates git objects only. After
//! the push, the records of each agent are changed under its lock and through its journal; then the
//! branch is moved. If the sync is killed between these changes, the next sync takes the files that
//! were applied as known to both clones.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::{Error, IoContext, Result};
use crate::local::anchor::Anchor;
use crate::model::id::AgentName;
use crate::model::state::{State, TickedBy};
use crate::model::tree::Blob;
use crate::process::git::Repository;
use crate::process::git::exchange::{PathChange, RemoteBranch};
use crate::process::git::index::Checkout;
use crate::rules::transition::moved::take;
use crate::store::git::{
    self, MERGED, MergeContext, MergedFile, RemoteFile, ScratchStore, agent_of, correct_base, merge_trees,
    refuse_foreign,
};
use crate::store::{Finding, Store};

use super::checks;
use super::context::Context;
use super::lookup::existing;
use super::session::Session;

/// Maximum pause before a retry. The pause is random, so that two clones don't collide again.
const PAUSE: Duration = Duration::from_millis(600);

/// Sync of this clone with the branch of a remote.
pub struct RemoteSync<'s> {
    store: &'s Store,
    repository: Repository<'s>,
    pub line: RemoteBranch,
}

/// Result of a sync.
#[derive(Debug, Default)]
pub struct SyncResult {
    /// Number of files of the state directory that this clone has received.
    pub received: usize,
    pub sent: usize,
    /// Paths of records that both clones have changed; one version was moved to `quarantine/`.
    pub quarantined: Vec<String>,
    /// Commit that is now checked out and on the remote branch.
    pub commit: String,
    /// True if another clone has claimed the agent that this clone wanted to claim.
    pub is_taken: bool,
}

impl SyncResult {
    /// Prints the paths of records of which another version is in `quarantine/`.
    pub fn print_quarantined(&self, session: &Session) {
        for path in &self.quarantined {
            session.out.note(&format!("{path}: another version of it is in quarantine/"));
        }
    }
}

/// Options of a sync.
#[derive(Default)]
pub struct SyncOptions<'e> {
    /// Subject and body of the commit message for this clone's changes.
    pub message: (&'e str, &'e str),
    /// True to fetch before the first push, and to check also the changes that this clone sends,
    /// which may be edits of a person.
    pub begins: bool,
    /// Agent that this clone claims, so that no other clone steps it.
    pub takes: Option<(&'e AgentName, &'e TickedBy)>,
}

/// Returns the git repository of a state directory. Error when the records are in a database.
/// `what`: name of the operation, as the beginning of a sentence.
pub fn repository<'s>(store: &'s Store, what: &str) -> Result<Repository<'s>> {
    store.files_for(what)?;
    Ok(Repository::of(store.anchor().path(), store.local().config.git, store.local().patience()))
}

impl<'s> RemoteSync<'s> {
    /// Finds the remote branch, and registers the merge driver in this clone. Error when git can't
    /// commit now.
    pub fn open(store: &'s Store, remote: Option<&str>) -> Result<RemoteSync<'s>> {
        let repository = repository(store, "`dormouse sync`")?;
        repository.check()?;
        let line = repository.line(remote)?;
        register(store)?;
        Ok(RemoteSync { store, repository, line })
    }

    /// Syncs this clone with the remote branch in both directions, with retries.
    pub fn run(&self, session: &Session, terms: &SyncOptions<'_>) -> Result<SyncResult> {
        let _alone = git::alone_in_clone(self.store.local(), &self.line.git_dir, session.clock.now())?;
        let mut found = SyncResult::default();
        let begun = Instant::now();
        let mut tries = 0;
        while !self.attempt(session, terms, tries > 0 || terms.begins, &mut found)? {
            tries += 1;
            if begun.elapsed() >= self.store.local().patience() {
                let message = format!(
                    "{}, branch {}: other clones were faster, or the records here had changed, {tries} times in \
                     {:.1} s",
                    self.line.remote,
                    self.line.branch,
                    begun.elapsed().as_secs_f64()
                );
                return Err(Error::refused(Error::CONTENDED, message)
                    .with_hint("nothing is lost: do this again, or try for longer with --lock-timeout"));
            }
            let chance = session.clock.stamp()?.chance;
            std::thread::sleep(PAUSE.mul_f64(chance * f64::from(tries.min(10)) / 10.0));
        }
        Ok(found)
    }

    /// Syncs once. Returns false if another clone pushed first, or local records changed meanwhile.
    fn attempt(
        &self,
        session: &Session,
        terms: &SyncOptions<'_>,
        fetches: bool,
        found: &mut SyncResult,
    ) -> Result<bool> {
        let (repository, line) = (&self.repository, &self.line);
        let head = self.snapshot(session, terms.message)?;
        let there = if fetches { repository.fetch(line)? } else { repository.commit_of(&line.known)? };
        let (merged, quarantined) = self.merge(&head, there.as_deref())?;
        let mut target = merged.clone();
        if let Some((name, by)) = terms.takes {
            match self.claim_commit(&merged, name, by, session)? {
                Some(taken) => target = taken,
                None => found.is_taken = true,
            }
        }
        let differences = |from: Option<&str>, to: &str| {
            if from == Some(to) { Ok(Vec::new()) } else { repository.differences(from, to) }
        };
        let changes = differences(Some(&head), &target)?;
        let checkout = Checkout { repository, line, changes: &changes, from: &head, to: &target };
        if changes.iter().any(|change| !line.is_inside(&change.path)) {
            checkout.check()?;
        }
        let sent = if terms.begins { differences(there.as_deref(), &target)? } else { Vec::new() };
        // Without a merge, all changes were made by this clone and are in its records already.
        let new = if merged == head { &[] } else { &changes[..] };
        let also = if there.is_some() { &sent[..] } else { &[] };
        self.check(session, &target, new.iter().chain(also))?;
        if there.as_ref() != Some(&target) && !repository.push(line, &target)? {
            return Ok(false);
        }
        let count =
            |changes: &[PathChange]| changes.iter().filter(|change| line.is_inside(&change.path)).count();
        found.sent += count(&sent);
        found.quarantined.extend(quarantined);
        if head != target {
            found.received += count(&changes);
            repository.record_applied(&target)?;
            if !self.bring_in(session, &changes)? || !checkout.run()? {
                return Ok(false);
            }
        }
        found.commit = target;
        Ok(true)
    }

    /// Commits the files of the state directory. Each agent's files are committed under its lock,
    /// so that the commit contains no unfinished transaction.
    fn snapshot(&self, session: &Session, (subject, body): (&str, &str)) -> Result<String> {
        for name in self.store.agents()? {
            self.store.agent(&name)?.empty_journal(session.clock.now())?;
        }
        let head = self.repository.snapshot(&self.line, (subject, body), |take_up, touched| {
            let mut others = Vec::new();
            let mut agents = BTreeSet::new();
            for path in touched {
                match agent_of(path) {
                    Some(name) => drop(agents.insert(name)),
                    None => others.push(format!(":(literal){path}")),
                }
            }
            for name in agents {
                let name = name.parse().map_err(|error| Error::in_word("AGENT", error))?;
                // An agent that was removed has no lock, and its removal is committed without one.
                let agent = self.store.agent(&name).ok();
                let locked = agent.as_ref().map(|agent| agent.change(session.clock.now())).transpose()?;
                locked.as_ref().map_or(Ok(()), |locked| locked.empty_journal())?;
                take_up(&[&git::dir_of(&name)])?;
            }
            if others.is_empty() {
                return Ok(());
            }
            take_up(&others.iter().map(String::as_str).collect::<Vec<_>>())
        })?;
        head.ok_or_else(|| {
            let message =
                format!("{} has nothing that git could commit", self.store.anchor().path().display());
            Error::failed(message).with_hint("`git status --ignored` shows the reason")
        })
    }

    /// Merges `there` into `head`. Returns the commit, and paths with a version in `quarantine/`.
    fn merge(&self, head: &str, there: Option<&str>) -> Result<(String, Vec<String>)> {
        let (repository, line) = (&self.repository, &self.line);
        let Some(there) = there.filter(|there| *there != head) else {
            return Ok((head.to_owned(), Vec::new()));
        };
        let Some(base) = repository.base(head, there)? else {
            return Err(Error::refused(
                "unrelated_histories",
                format!(
                    "{}, branch {}: it has no commit in common with this clone",
                    line.remote, line.branch
                ),
            )
            .with_hint("clone the repository, or merge once with --allow-unrelated-histories"));
        };
        if base == there {
            return Ok((head.to_owned(), Vec::new()));
        }
        let (ours, theirs) = (repository.tree(line, head)?, repository.tree(line, there)?);
        refuse_foreign(&ours, &theirs)?;
        if base == head {
            return Ok((there.to_owned(), Vec::new()));
        }
        let (by_git, unmerged) = repository.merge(head, there)?;
        let text = repository.tree(line, &by_git)?;
        let outside = unmerged.iter().find(|path| !line.is_inside(path));
        let mut base = repository.tree(line, &base)?;
        if let Some(applied) = repository.incomplete_merge(head)? {
            correct_base(&mut base, &ours, &repository.tree(line, &applied)?);
        }
        let mut texts = text.clone();
        let conflicts = unmerged.iter().filter_map(|path| path.strip_prefix(&line.prefix));
        conflicts.for_each(|path| drop(texts.remove(path)));
        let context = MergeContext {
            read: &|blob| Ok(repository.contents(&[&blob.id])?.next().transpose()?.unwrap_or_default()),
            texts: &texts,
            is_own: &|name, id| {
                existing(self.store, name)?.map_or(Ok(false), |agent| agent.local().has_taken(id))
            },
        };
        let merged = merge_trees([&base, &ours, &theirs], &context)?;
        let inside = merged.conflicts.first().map(|path| format!("{}{path}", line.prefix));
        if let Some(path) = outside.cloned().or(inside) {
            let message = format!("{path}: it was changed here and at {}, in the same lines", line.remote);
            return Err(Error::refused("merge_conflict", message).with_hint(format!(
                "merge it by hand: `git fetch {0} && git merge {0}/{1}`, or undo one of the changes",
                line.remote, line.branch
            )));
        }
        let mut changes: BTreeMap<String, Option<Blob>> = text
            .keys()
            .filter(|path| !merged.files.contains_key(*path))
            .map(|path| (path.clone(), None))
            .collect();
        for (path, kept) in merged.files {
            let blob = match kept {
                MergedFile::As(blob) => blob,
                MergedFile::Made(bytes) => repository.keep(&bytes)?,
            };
            if text.get(&path) != Some(&blob) {
                changes.insert(path, Some(blob));
            }
        }
        let subject = format!("Merge branch {} of {}", line.branch, line.remote);
        let tree = repository.write_tree(line, &by_git, &changes)?;
        Ok((repository.commit_tree(&tree, &[head, there], &subject)?, merged.quarantined))
    }

    /// Returns a commit in which this clone claims the agent; `None` if another clone has claimed
    /// it.
    fn claim_commit(
        &self,
        commit: &str,
        name: &AgentName,
        by: &TickedBy,
        session: &Session,
    ) -> Result<Option<String>> {
        let path = git::state_of(name);
        let agent = self.store.agent(name)?;
        let Some(bytes) = self.repository.content_at(&self.line, commit, &path)? else { return Ok(None) };
        let state: State = git::decode(&self.store.anchor().path().join(&path), &bytes)?;
        if let Some(other) = &state.ticked_by {
            if other.id == by.id {
                return Ok(Some(commit.to_owned()));
            }
            if session.clock.now() <= other.expires_at && !agent.local().has_taken(&other.id)? {
                return Ok(None);
            }
        }
        agent.local().note_ticked(&by.id)?;
        let blob = self.repository.keep(&git::encode(&take(state, by.clone())))?;
        let changes = BTreeMap::from([(path, Some(blob))]);
        let subject = format!("{name}: taken by {}", by.host);
        let tree = self.repository.write_tree(&self.line, commit, &changes)?;
        self.repository.commit_tree(&tree, &[commit], &subject).map(Some)
    }

    /// Runs the checks of `doctor` on the agents that `changes` touch, in a scratch directory with
    /// the files of the commit.
    fn check<'c>(
        &self,
        session: &Session,
        target: &str,
        changes: impl Iterator<Item = &'c PathChange>,
    ) -> Result<()> {
        let (repository, line) = (&self.repository, &self.line);
        let inside = changes.filter_map(|change| change.path.strip_prefix(&line.prefix));
        let names: BTreeSet<&str> = inside.filter_map(agent_of).collect();
        if names.is_empty() {
            return Ok(());
        }
        let tree = repository.tree(line, target)?;
        let wanted: Vec<(&String, &Blob)> = tree
            .iter()
            .filter(|(path, blob)| {
                blob.is_file() && agent_of(path).map_or(*path == git::CONFIG, |name| names.contains(name))
            })
            .collect();
        let scratch = ScratchStore::make(&line.git_dir, "dormouse-check")?;
        let ids: Vec<&str> = wanted.iter().map(|(_, blob)| blob.id.as_str()).collect();
        for ((path, _), bytes) in wanted.iter().zip(repository.contents(&ids)?) {
            scratch.put(path, &bytes?)?;
        }
        let present: BTreeSet<&str> = wanted.iter().filter_map(|(path, _)| agent_of(path)).collect();
        present.iter().try_for_each(|name| match self.look_at(session, scratch.path(), name) {
            Err(error @ Error::Damaged { .. }) => Err(error),
            done => done.map_err(|error| {
                Error::failed(format!("the files from the remote could not be checked: {error}"))
                    .with_hint("nothing has changed here")
            }),
        })
    }

    /// Error when the records of an agent in the scratch directory are damaged.
    fn look_at(&self, session: &Session, scratch: &Path, name: &str) -> Result<()> {
        let name = name.parse().map_err(|error| Error::in_word("AGENT", error))?;
        let store = session.store_at(Anchor::find(Some(scratch), None)?)?;
        let (agent, now) = (store.agent(&name)?, session.clock.now());
        // An error is ignored, because the checks below report a journal that can't be applied.
        let _locked = agent.change_damaged(now).ok();
        let files = agent.as_files()?;
        let found = checks::agent(&files);
        // If two clones have settled one message, a person must decide, but no file is damaged.
        let is_of_merge =
            |finding: &Finding| ["ended_twice", "dead_count", "outbox_count"].contains(&finding.kind);
        let is_damage = |finding: &&Finding| !finding.remedy.is_warning() && !is_of_merge(finding);
        let Some(finding) = found.findings.iter().find(is_damage) else { return Ok(()) };
        let root = self.store.anchor().path().to_string_lossy();
        let place = finding.place().replace(&*scratch.to_string_lossy(), &root);
        let message = format!("as the merged records would have it: {}", finding.message);
        Err(Error::damaged(place, message).with_hint(
            "nothing has changed here: correct it in the clone that it comes from, or here with \
             `dormouse doctor`",
        ))
    }

    /// Applies changes to the records of this clone. False if a file here is not as last committed.
    fn bring_in(&self, session: &Session, changes: &[PathChange]) -> Result<bool> {
        let line = &self.line;
        let inside: Vec<&PathChange> = changes.iter().filter(|change| line.is_inside(&change.path)).collect();
        let ids: Vec<&str> = inside
            .iter()
            .flat_map(|change| [&change.before, &change.after])
            .flatten()
            .map(|blob| &*blob.id)
            .collect();
        let mut contents = self.repository.contents(&ids)?;
        let mut content = |blob: &Option<Blob>| blob.as_ref().and_then(|_| contents.next()).transpose();
        let brought = |change: &&PathChange| -> Result<RemoteFile> {
            Ok(RemoteFile {
                path: change.path.strip_prefix(&line.prefix).unwrap_or_default().to_owned(),
                before: content(&change.before)?,
                after: content(&change.after)?,
                is_program: change.after.as_ref().is_some_and(Blob::is_program),
            })
        };
        let files = self.store.files_for("`dormouse sync`")?;
        files.bring(inside.iter().map(brought).collect::<Result<_>>()?, session.clock.now())
    }
}

/// Pushes the claim of a message before its turn runs. If the push fails, the turn runs anyway, and
/// the claim is pushed with the settlement of the run.
pub fn publish(context: Context<'_>, line: RemoteBranch, subject: &str) {
    let session = context.session;
    let (remote, store) = (line.remote.clone(), context.store());
    let terms = SyncOptions { message: (subject, ""), ..SyncOptions::default() };
    let exchange = repository(store, "a push").map(|repository| RemoteSync { store, repository, line });
    if let Err(error) = exchange.and_then(|exchange| exchange.run(session, &terms)) {
        session.out.note(&format!("{subject}, and {remote} does not know it yet: {error}"));
    }
}

/// Registers `merge-driver` in this clone for the files of the state directory. Returns true if
/// git's configuration was changed.
pub fn register(store: &Store) -> Result<bool> {
    let program = std::env::current_exe().context("find", Path::new("this program"))?;
    repository(store, "a merge driver")?.merge_by(&program, MERGED)
}
