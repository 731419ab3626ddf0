//! Runs the tests of commands again, with the records in PostgreSQL.
//!
//! `DORMOUSE_TEST_STORE=postgres cargo test --test it` runs all tests so, also those about files.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crate::harness::is_elsewhere;
use crate::setup::{number, words};

/// Modules whose tests run again with PostgreSQL. `naming::` matches `renaming::` too.
const FAMILIES: &str = "asking:: attention:: authority:: awaiting:: clock:: deferrals:: delegation:: gc:: hooks:: ingress:: \
     inspect:: lifecycle:: limits:: messages:: metrics:: naming:: planes:: preemption:: reported:: \
     resources:: signals:: silence:: slots:: stop:: summary:: tasks:: telling:: tick:: timeouts:: \
     triggers:: turns::";

/// Tests of these modules that cannot pass with a database:
/// - They read or change the files of records, drop files into an inbox, use git on a state
///   directory, copy one, or compare an environment or path without a database.
/// - They expect that `tick --all` prints resting agents: a database returns only due agents.
/// - One expects that a command sleeps until a file changes: with a database the command polls.
/// - One measures memory, of which a statement for a database takes more.
/// - One lets a minute pass by the clock of the sandbox, while the clock of the server counts.
const ABOUT_FILES: &[&str] = &[
    "attention::a_message_to_a_deleted_agent_is_reported",
    "attention::a_pending_report_with_a_time_in_the_future_is_delivered",
    "attention::a_rejected_file_is_reported",
    "attention::a_tick_with_commit_commits_the_record_of_the_hook_call",
    "attention::an_agent_does_not_acknowledge_for_itself",
    "authority::a_message_that_a_private_agent_refuses_at_delivery_is_reported_and_dropped",
    "delegation::a_child_completes_its_work_although_the_records_of_its_parent_are_damaged",
    "delegation::a_delegation_ends_with_its_timeout_or_when_its_child_is_deleted",
    "delegation::the_next_step_finishes_an_interrupted_handover_once",
    "delegation::the_next_step_of_the_parent_finishes_an_interrupted_cancellation",
    "gc::a_step_that_removes_history_can_be_killed_anywhere",
    "gc::gc_can_be_killed_anywhere",
    "gc::invalid_settings_and_flags_are_refused",
    "ingress::alike::a_slow_disk_is_not_heard_in_the_answer",
    "ingress::health_is_what_doctor_finds_quickly",
    "ingress::memory::whatever_is_sent_takes_little",
    "ingress::signatures::every_scheme_is_accepted_once_as_its_maker_documents_it",
    "ingress::too_many_deliveries_wait_a_minute",
    "inspect::a_run_is_its_record",
    "inspect::one_damaged_agent_does_not_hide_the_others_from_the_list",
    "inspect::reading_changes_no_byte",
    "lifecycle::a_message_waits_for_the_command_that_its_agent_lacks",
    "lifecycle::a_run_of_another_host_counts_as_live_until_its_lease_ends",
    "lifecycle::a_stored_paused_is_read_as_stopped",
    "lifecycle::an_agent_that_is_removed_while_its_turn_runs_is_not_made_anew",
    "lifecycle::create_from_a_file_takes_it_as_it_is",
    "lifecycle::create_makes_a_booting_agent_and_shows_its_secret_once",
    "lifecycle::create_without_a_command_says_what_is_missing",
    "lifecycle::only_a_failed_agent_recovers",
    "lifecycle::only_names_that_are_safe_in_a_path_are_names",
    "lifecycle::recover_by_force_takes_a_run_from_another_host",
    "lifecycle::stop_asks_a_running_turn_to_end",
    "lifecycle::stop_says_that_a_turn_goes_on_elsewhere",
    "lifecycle::stopping_a_stopped_agent_changes_nothing",
    "limits::a_batch_with_keys_admits_each_key_once",
    "limits::a_dropped_copy_is_foreseen_as_one",
    "limits::a_journal_of_thousands_is_carried_out_under_tight_limits",
    "limits::a_step_that_finds_nothing_to_do_takes_in_more_dropped_files",
    "limits::a_thousand_dropped_files_are_taken_in_under_the_common_limit_of_open_files",
    "limits::an_outbox_of_thousands_costs_thousands_and_not_their_square",
    "limits::an_outbox_that_does_not_get_empty_is_bounded",
    "limits::an_outbox_that_was_delivered_in_part_is_delivered_once",
    "limits::an_outcome_has_as_many_actions_as_its_limit_says",
    "limits::an_outcome_is_as_large_as_its_limit_says",
    "limits::dropped_files_beyond_the_limit_stay_for_the_next_steps",
    "limits::dropped_files_that_say_much_are_taken_in_bit_by_bit",
    "limits::timers_that_are_due_together_say_no_more_at_once_than_can_be_read",
    "limits::what_changes_twice_in_one_transaction_is_read_as_it_is_in_the_end",
    "limits::work_beyond_the_limit_is_refused_and_what_is_open_goes_on",
    "messages::a_body_larger_than_the_limit_is_refused_and_the_limit_named",
    "messages::a_checkout_of_an_older_state_has_only_the_keys_of_its_records",
    "messages::a_copy_of_a_state_directory_is_as_good_as_the_original",
    "messages::a_file_dropped_into_the_inbox_is_a_message",
    "messages::a_message_carries_its_whole_provenance",
    "messages::an_invalid_file_is_moved_to_rejected_with_the_reason",
    "messages::arrivals_and_policies_of_two_clones_merge_without_a_conflict",
    "messages::enqueue_prints_the_id_of_its_message",
    "messages::pending_hints_of_one_scope_are_merged_and_counted",
    "messages::two_copies_from_two_clones_are_reduced_to_one",
    "metrics::an_unreadable_agent_is_counted_and_named",
    "metrics::counters_survive_gc_and_export",
    "metrics::over_http_no_private_agent_is_named",
    "naming::behind_a_flag_that_takes_any_number_of_words_an_agent_is_an_agent",
    "naming::events_of_several_agents_are_followed_until_nobody_reads_or_they_are_gone",
    "naming::every_list_is_about_all_agents_unless_some_are_named",
    "planes::a_message_to_another_agent_is_delivered_once",
    "planes::a_work_item_is_shown_whole",
    "preemption::checkpoints::a_turn_runs_even_if_its_checkpoint_is_missing",
    "preemption::checkpoints::a_turn_whose_timeout_is_over_can_save_a_checkpoint",
    "preemption::ending::renewed_sections_end_after_max_section",
    "preemption::ending::the_leader_gets_the_signal_first_unless_the_policy_says_group",
    "preemption::ending::the_timeout_of_a_turn_waits_for_a_section",
    "preemption::forced::a_threshold_is_a_percentage",
    "preemption::rounds::a_turn_is_asked_saves_a_checkpoint_and_is_resumed",
    "preemption::rounds::requests_for_one_run_are_merged",
    "preemption::sections::the_status_of_a_command_is_handed_on_even_if_its_section_could_not_be_closed",
    "renaming::a_command_that_is_held_anywhere_meets_one_name_or_none",
    "renaming::a_producer_that_is_held_around_its_arrival_is_told_of_a_renaming",
    "renaming::a_renaming_can_be_killed_at_every_call",
    "renaming::a_renaming_that_finds_the_disk_full_loses_nothing",
    "renaming::a_renaming_that_was_killed_can_take_another_name",
    "renaming::two_renamings_at_once_make_one_agent",
    "renaming::what_a_turn_has_sent_before_arrives",
    "renaming::what_can_not_be_renamed_stays_as_it_was",
    "reported::a_browser_finds_nothing_to_run_in_the_page",
    "reported::no_agent_and_one_that_can_not_be_read_make_a_page_too",
    "reported::ten_thousand_turns_make_no_large_page",
    "reported::text_from_outside_stays_text",
    "resources::a_limit_that_is_raised_counts_with_the_next_step",
    "resources::a_limit_that_makes_no_sense_is_refused_where_it_is_read",
    "resources::a_tick_of_all_begins_with_the_most_urgent_and_a_starving_agent_ages",
    "resources::a_tick_that_is_killed_frees_its_workspace_once_nothing_of_its_turn_is_left",
    "signals::a_turn_that_will_not_end_is_ended_by_whatever_ends_turns",
    "signals::whoever_has_the_pid_of_a_dead_task_or_its_supervisor_is_not_hit",
    "silence::a_wait_for_a_task_whose_result_is_lost_is_healed",
    "summary::a_dropped_file_is_seen_before_a_step_and_after_it_was_rejected",
    "summary::a_dropped_file_keeps_a_delegation_open",
    "summary::a_hint_is_seen_before_a_step_has_taken_it_in",
    "tasks::a_task_of_a_host_that_is_gone_can_be_given_up",
    "tasks::an_agent_that_its_failure_stops_ends_its_tasks",
    "tasks::whoever_follows_a_task_sleeps_while_it_says_nothing",
    "tick::a_dry_run_sees_a_repeat_that_is_dropped",
    "tick::a_runnable_work_item_gets_one_tick_for_each_of_its_revisions",
    "tick::a_step_beside_a_live_turn_is_a_noop",
    "tick::a_step_with_commit_makes_one_git_commit_and_leaves_a_clean_tree",
    "tick::after_a_step_with_commit_the_state_directory_is_clean",
    "tick::git_keeps_the_truth_and_only_the_truth",
    "tick::nothing_to_do_is_success_unless_asked",
    "tick::one_damaged_agent_does_not_keep_the_others_from_their_step",
    "timeouts::a_time_that_makes_no_sense_is_refused_where_it_is_read",
    "timeouts::exactly_at_its_limit_a_state_is_not_over_and_one_millisecond_later_it_has_failed",
    "timeouts::the_limit_of_a_stop_can_not_be_switched_off",
    "triggers::a_hint_wakes_and_says_what_its_trigger_is_about",
    "triggers::a_secret_is_shown_once_and_only_its_hash_is_kept",
    "triggers::a_stopped_agent_keeps_messages_and_ignores_hints",
    "triggers::a_wrong_secret_a_revoked_trigger_and_an_unknown_one_are_told_alike",
    "triggers::counts_are_of_what_was_taken_up_and_of_what_waits",
    "triggers::the_key_of_signatures_is_the_owners_alone_and_never_in_git",
    "triggers::the_trigger_that_comes_with_an_agent_takes_deliveries",
    "turns::a_turn_inherits_only_what_its_policy_names",
    "turns::a_turn_inherits_the_environment_and_is_told_who_it_is",
    "turns::a_turn_works_in_the_directory_that_holds_the_state_directory",
    "turns::an_agents_policy_is_checked_before_its_turn",
];

/// Returns the names of all tests that match a filter, in order.
fn list(filters: &[&str]) -> Vec<String> {
    let listed = Command::new(std::env::current_exe().unwrap()).args(filters).arg("--list").output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

/// The sample is each sixth test, beginning with number `DORMOUSE_ELSEWHERE_SEED` (default 0).
const STEP: usize = 6;

/// Runs a sixth of the tests. `DORMOUSE_ELSEWHERE=all` runs all of them.
#[test]
fn commands_do_the_same_in_a_database() {
    if is_elsewhere() {
        return;
    }
    let mut all = list(&words(FAMILIES));
    all.retain(|name| !ABOUT_FILES.contains(&name.as_str()));
    assert!(all.len() > 450, "{all:?}");
    let step = match std::env::var("DORMOUSE_ELSEWHERE").as_deref() {
        Ok("all") => 1,
        Ok(other) => panic!("DORMOUSE_ELSEWHERE is `all` or unset, and not `{other}`"),
        Err(_) => STEP,
    };
    let first = number("DORMOUSE_ELSEWHERE_SEED", 0) as usize % step;
    let sample: Vec<&String> = all.iter().skip(first).step_by(step).collect();
    let mut tests = Command::new(std::env::current_exe().unwrap());
    tests.args(&sample).args(["--exact", "--test-threads=2"]);
    let (is_well, said) = run(tests.env("DORMOUSE_TEST_STORE", "postgres"));
    let summary = said.lines().rfind(|line| line.starts_with("test result: ")).unwrap_or_default();
    let count = summary.split("ok. ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<usize>().ok());
    assert!(is_well && count == Some(sample.len()), "{said}");
}

/// Maximum time without a line of output. After it a test waits for an event that never happens.
const QUIET: Duration = Duration::from_secs(600);

/// Runs tests until they end or print nothing for [`QUIET`]. Returns true if all have passed, and
/// their output.
fn run(tests: &mut Command) -> (bool, String) {
    let mut child = tests.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let (tell, told) = mpsc::channel();
    thread::spawn(move || lines.take_while(|line| tell.send(line.clone()).is_ok()).count());
    let mut said = String::new();
    loop {
        match told.recv_timeout(QUIET) {
            Ok(line) => said = said + &line + "\n",
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                said += "no test has ended for ten minutes\n";
                child.kill().unwrap();
                break;
            }
        }
    }
    let status = child.wait().unwrap();
    (status.success(), said)
}

#[test]
fn all_tests_about_files_exist() {
    let all = list(&[]);
    let unknown: Vec<_> = ABOUT_FILES.iter().filter(|name| !all.iter().any(|test| test == *name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}
