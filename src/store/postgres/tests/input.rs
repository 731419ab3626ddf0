//! Tests of input for a task on another machine.

use std::sync::atomic::AtomicBool;

use super::super::super::backend::input::{InputAnswer, MOST_PARTS, SAID, TaskInput, WAITING};
use super::super::super::backend::{Lease, LeaseClaimant};
use super::super::super::dir::Subject;
use super::*;
use crate::model::id::TaskId;
use crate::model::record::Plane;
use crate::model::time::Span;

pub const TASK: TaskId = TaskId(Uuid::from_u128(9));

/// Creates an agent `a` with an open task, whose supervisor has a lease.
pub fn at_work(fresh: &Fresh) -> (Rc<dyn AgentRecords>, Box<dyn Lease>) {
    let agent = create(&fresh.open(), "a");
    let open = Op::Open { plane: Plane::Tasks, id: TASK.to_string(), text: "{}\n".to_owned() };
    hold(&agent).commit(1, &[state(2), open]).unwrap();
    let claimant =
        LeaseClaimant { host: "h".into(), anchor: "one".into(), pid: 1, lasts: Span::from_secs(600) };
    let lease = agent.lease(Subject::Task(TASK), &|| Ok(claimant.clone())).unwrap().unwrap();
    (agent, lease)
}

fn words(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

/// Takes all parts of the input with numbers above `written`. Returns their bytes and last number.
fn heard(input: &dyn TaskInput, mut written: i64) -> (Vec<u8>, i64) {
    let mut all = Vec::new();
    loop {
        let parts = input.next_parts(written).unwrap();
        assert!(parts.len() <= MOST_PARTS);
        let Some((last, _)) = parts.last() else { return (all, written) };
        written = *last;
        all.extend(parts.into_iter().flat_map(|(_, bytes)| bytes));
    }
}

fn close() -> Op {
    Op::Closed { plane: Plane::Tasks, id: TASK.to_string() }
}

#[test]
fn task_input_is_delivered_once_and_in_order() {
    needs!("postgresql");
    let fresh = Fresh::made();
    let (agent, _lease) = at_work(&fresh);
    let ours = agent.task_input(TASK).unwrap().unwrap();
    let theirs = agent_of(&fresh.open(), "a").task_input(TASK).unwrap().unwrap();
    let long: Vec<u8> = (0..SAID * 9 + 7).map(|at| at as u8).collect();
    // Input does not wait for the agent's lock.
    let mine = hold(&agent);
    assert_eq!(theirs.append(words(2), b"one").unwrap(), InputAnswer::Waits);
    assert_eq!(theirs.append(words(1), &long).unwrap(), InputAnswer::Waits);
    drop(mine);
    let rest = theirs.rest(words(1)).unwrap();
    assert!(rest.bytes == long.len() && !rest.is_refused && rest.is_heard);
    // Until the supervisor confirms parts of the input by number, the supervisor gets these parts
    // again, and the sender can't take them back.
    let first = ours.next_parts(0).unwrap();
    assert_eq!(ours.next_parts(0).unwrap(), first);
    assert_eq!(theirs.take_back(words(2)).unwrap(), 0);
    assert_eq!(theirs.rest(words(2)).unwrap().bytes, 3);
    let (all, last) = heard(&*ours, 0);
    assert_eq!(all, [b"one".as_slice(), &long].concat());
    assert_eq!(theirs.rest(words(1)).unwrap().bytes, 0);
    theirs.append(words(3), b"more").unwrap();
    assert_eq!(heard(&*ours, last).0, b"more");
    assert_eq!(fresh.count("task_input"), 0);
}

#[test]
fn task_input_is_refused_after_the_task_ends_or_stops_reading() {
    needs!("postgresql");
    let fresh = Fresh::made();
    let (agent, lease) = at_work(&fresh);
    let input = agent.task_input(TASK).unwrap().unwrap();
    let other = agent.task_input(TaskId(Uuid::from_u128(8))).unwrap().unwrap();
    assert_eq!(other.append(words(1), b"x").unwrap(), InputAnswer::Ended);
    // Input of one byte below the limit is accepted, and then one byte, but not two.
    let much = vec![0; WAITING - 1];
    assert_eq!(input.append(words(1), &much).unwrap(), InputAnswer::Waits);
    assert_eq!(input.append(words(2), b"12").unwrap(), InputAnswer::Full);
    assert_eq!(input.append(words(3), b"1").unwrap(), InputAnswer::Waits);
    assert_eq!(input.append(words(4), &vec![0; WAITING + 1]).unwrap(), InputAnswer::Full);
    // The supervisor refuses input, as after the command has closed its standard input.
    input.refuse().unwrap();
    assert!(input.rest(words(1)).unwrap().is_refused && input.next_parts(0).unwrap().is_empty());
    assert_eq!((input.take_back(words(1)).unwrap(), input.take_back(words(3)).unwrap()), (much.len(), 1));
    // When the task ends, parts that its supervisor has taken count; others can be taken back.
    let parts = vec![1; SAID * (MOST_PARTS + 2)];
    input.append(words(5), &parts).unwrap();
    assert_eq!(input.next_parts(0).unwrap().len(), MOST_PARTS);
    hold(&agent).commit(2, &[state(3), close()]).unwrap();
    let rest = input.rest(words(5)).unwrap();
    assert!(rest.is_refused && !rest.is_heard && rest.bytes == SAID * 2, "{rest:?}");
    assert_eq!(input.append(words(6), b"late").unwrap(), InputAnswer::Ended);
    assert_eq!(input.take_back(words(5)).unwrap(), SAID * 2);
    assert_eq!(fresh.count("task_input"), 0);
    lease.release().unwrap();
}

/// Without a live lease of the task, input is refused.
#[test]
fn task_input_is_refused_without_a_supervisor() {
    needs!("postgresql");
    let fresh = Fresh::made();
    let (agent, lease) = at_work(&fresh);
    let input = agent.task_input(TASK).unwrap().unwrap();
    input.append(words(1), b"x").unwrap();
    fresh.run("UPDATE @.lease SET expires_at = 0");
    assert!(!input.rest(words(1)).unwrap().is_heard);
    assert_eq!(input.append(words(2), b"x").unwrap(), InputAnswer::Ended);
    lease.release().unwrap();
    assert_eq!(input.append(words(3), b"x").unwrap(), InputAnswer::Ended);
    // Input of a killed sender is deleted at the end of another task after its retention period.
    hold(&agent).commit(2, &[state(3), close()]).unwrap();
    assert_eq!(fresh.count("task_input"), 1);
    fresh.run("UPDATE @.task_input SET at = at - 3600001");
    let other = Op::Closed { plane: Plane::Tasks, id: TaskId(Uuid::from_u128(8)).to_string() };
    hold(&agent).commit(3, &[state(4), other]).unwrap();
    assert_eq!(fresh.count("task_input"), 0);
}

/// Several senders add input, some take it back, and the task ends at a random time: each byte is
/// delivered, or its sender knows that it was not.
#[test]
fn task_input_is_delivered_unless_the_sender_takes_it_back() {
    needs!("postgresql");
    let fresh = Fresh::made();
    let (agent, _lease) = at_work(&fresh);
    let is_over = AtomicBool::new(false);
    let (said, heard) = std::thread::scope(|scope| {
        let speakers: Vec<_> = (1..=3u128)
            .map(|speaker| {
                let (fresh, is_over) = (&fresh, &is_over);
                scope.spawn(move || {
                    let input = agent_of(&fresh.open(), "a").task_input(TASK).unwrap().unwrap();
                    let (mut said, mut number) = (0, 0);
                    loop {
                        number += 1;
                        let words = words(speaker << 64 | number);
                        let bytes = vec![speaker as u8; SAID * 2 + 1];
                        match input.append(words, &bytes).unwrap() {
                            InputAnswer::Ended => return said,
                            InputAnswer::Full => panic!("nothing takes so long"),
                            InputAnswer::Waits if number % 2 == 0 || is_over.load(Ordering::SeqCst) => {
                                said += bytes.len() - input.take_back(words).unwrap();
                            }
                            InputAnswer::Waits => loop {
                                let rest = input.rest(words).unwrap();
                                if rest.bytes == 0 || rest.is_refused {
                                    said += bytes.len() - input.take_back(words).unwrap();
                                    break;
                                }
                            },
                        }
                    }
                })
            })
            .collect();
        let input = agent.task_input(TASK).unwrap().unwrap();
        let (mut written, mut heard, mut rounds) = (0, 0, 0);
        while rounds < 60 {
            let parts = input.next_parts(written).unwrap();
            rounds += usize::from(!parts.is_empty());
            for (number, bytes) in parts {
                assert!(number > written, "in order");
                (written, heard) = (number, heard + bytes.len());
            }
        }
        is_over.store(true, Ordering::SeqCst);
        hold(&agent).commit(2, &[state(3), close()]).unwrap();
        let said: usize = speakers.into_iter().map(|one| one.join().unwrap()).sum();
        (said, heard)
    });
    assert_eq!(said, heard);
    assert_eq!(fresh.count("task_input"), 0);
}
