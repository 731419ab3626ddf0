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
const FAMILIES: &str = "asking:: attention:: authority:: awaiting:: clock:: deferrals:: delegation:: edges:: gc:: hooks:: \
     ingress:: inspect:: lifecycle:: limits:: messages:: metrics:: naming:: work_and_waits:: preemption:: report_page:: \
     resources:: signals:: wait_ends:: slots:: stop:: summary:: tasks:: hook_delivery:: tick:: timeouts:: \
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
    "edges::a_command_that_is_refused_changes_nothing_and_runs_no_hook",
    "edges::state_allows_the_23_edges_and_refuses_the_other_121_pairs",
    "gc::a_step_that_removes_history_can_be_killed_anywhere",
    "gc::gc_can_be_killed_anywhere",
    "gc::gc_with_a_limit_for_history_ends_while_the_agent_changes",
    "gc::invalid_settings_and_flags_are_refused",
    "ingress::alike::a_slow_disk_does_not_change_the_time_of_the_answer",
    "ingress::healthz_reports_the_result_of_doctor_quick",
    "ingress::memory::no_request_uses_much_memory",
    "ingress::signatures::the_documented_example_of_every_scheme_is_accepted_once",
    "ingress::deliveries_above_the_rate_limit_are_refused_for_a_minute",
    "inspect::run_show_prints_the_record_of_the_run",
    "inspect::one_damaged_agent_does_not_hide_the_others_from_the_list",
    "inspect::reading_changes_no_byte",
    "lifecycle::a_run_of_another_host_counts_as_live_until_its_lease_ends",
    "lifecycle::a_stored_paused_is_read_as_stopped",
    "lifecycle::an_agent_that_is_deleted_during_its_turn_is_not_created_again",
    "lifecycle::create_from_a_file_copies_the_file_unchanged",
    "lifecycle::create_makes_a_booting_agent_and_shows_its_secret_once",
    "lifecycle::create_warns_that_the_agent_has_no_turn_command",
    "lifecycle::only_a_failed_agent_recovers",
    "lifecycle::only_names_that_are_safe_in_a_path_are_accepted",
    "lifecycle::recover_by_force_takes_a_run_from_another_host",
    "lifecycle::stop_asks_a_running_turn_to_end",
    "lifecycle::stop_warns_that_a_turn_continues_on_another_machine",
    "limits::a_batch_with_keys_admits_each_key_once",
    "limits::a_journal_line_with_3000_writes_is_applied_with_64_open_files",
    "limits::a_step_that_has_only_rejected_dropped_files_reads_more_of_them",
    "limits::a_thousand_dropped_files_are_admitted_with_1024_open_files",
    "limits::the_delivery_of_an_outbox_needs_a_linear_number_of_calls",
    "limits::the_outbox_for_a_locked_agent_is_bounded",
    "limits::a_partly_delivered_outbox_delivers_each_message_once",
    "limits::an_outcome_with_more_actions_than_max_actions_is_refused",
    "limits::an_outcome_larger_than_max_outcome_is_refused",
    "limits::dropped_files_beyond_the_limit_stay_for_the_next_steps",
    "limits::large_dropped_files_are_admitted_over_several_steps",
    "limits::a_step_fires_only_as_many_timers_as_fit_into_a_transaction",
    "limits::of_two_writes_of_a_file_in_a_transaction_readers_see_the_last",
    "limits::max_open_work_refuses_new_items_and_keeps_open_items_usable",
    "messages::a_body_larger_than_the_limit_is_refused_and_the_limit_named",
    "messages::a_checkout_of_an_older_state_has_only_the_keys_of_its_records",
    "messages::a_copy_without_empty_directories_works_like_the_original",
    "messages::a_message_carries_its_whole_provenance",
    "messages::an_invalid_file_is_moved_to_rejected_with_the_reason",
    "messages::arrivals_and_policies_of_two_clones_merge_without_a_conflict",
    "messages::enqueue_prints_the_id_of_its_message",
    "messages::pending_hints_of_one_scope_are_merged_and_counted",
    "messages::of_two_messages_with_one_key_from_two_clones_one_is_dropped",
    "metrics::an_unreadable_agent_is_counted_and_named",
    "metrics::counters_survive_gc_and_export",
    "metrics::over_http_no_private_agent_is_named",
    "naming::ack_takes_the_named_agents_or_all_and_drop_needs_one_agent",
    "naming::events_follow_ends_without_a_reader_or_a_state_directory",
    "naming::every_list_covers_all_agents_unless_some_are_named",
    "stop::a_stop_that_is_killed_between_its_commit_and_its_files_is_finished_by_the_tick",
    "work_and_waits::a_message_to_another_agent_is_delivered_once",
    "work_and_waits::a_work_item_is_shown_whole",
    "preemption::checkpoints::a_turn_runs_even_if_its_checkpoint_is_missing",
    "preemption::checkpoints::a_turn_whose_timeout_is_over_can_save_a_checkpoint",
    "preemption::ending::renewed_sections_end_after_max_section",
    "preemption::ending::the_leader_gets_the_signal_first_unless_the_policy_is_group",
    "preemption::ending::the_timeout_of_a_turn_waits_for_a_section",
    "preemption::rounds::a_turn_is_asked_saves_a_checkpoint_and_is_resumed",
    "preemption::rounds::requests_for_one_run_are_merged",
    "preemption::sections::a_command_keeps_its_status_even_if_its_section_can_not_be_closed",
    "renaming::a_command_that_is_paused_during_a_rename_leaves_one_agent",
    "renaming::enqueue_delivers_or_fails_if_the_agent_is_renamed_meanwhile",
    "renaming::a_renaming_can_be_killed_at_every_call",
    "renaming::a_renaming_that_finds_the_disk_full_loses_nothing",
    "renaming::a_renaming_that_lacks_a_permission_leaves_a_usable_agent_or_can_be_repeated",
    "renaming::a_renaming_that_was_killed_can_take_another_name",
    "renaming::a_renaming_whose_main_call_fails_can_be_completed",
    "renaming::two_concurrent_renames_leave_one_agent",
    "renaming::a_message_that_was_sent_before_a_rename_is_delivered",
    "renaming::a_refused_rename_changes_nothing",
    "report_page::a_browser_finds_nothing_to_run_in_the_page",
    "report_page::report_works_without_agents_and_with_an_unreadable_agent",
    "report_page::ten_thousand_turns_make_no_large_page",
    "report_page::text_from_outside_stays_text",
    "resources::a_limit_that_is_raised_counts_with_the_next_step",
    "resources::tick_all_orders_agents_by_priority_and_waiting_time",
    "resources::a_killed_tick_keeps_its_workspace_until_its_processes_have_ended",
    "signals::every_way_to_end_a_turn_ends_a_turn_that_resists",
    "signals::a_process_with_the_reused_pid_of_a_task_is_not_killed",
    "wait_ends::a_step_ends_a_wait_for_a_task_whose_result_is_lost",
    "summary::a_dropped_file_is_counted_before_a_step_and_after_its_rejection",
    "summary::a_dropped_file_keeps_a_delegation_open",
    "summary::get_and_list_show_a_hint_before_any_step",
    "tasks::task_stop_with_force_interrupts_a_task_of_a_lost_host",
    "tasks::an_agent_that_stops_after_its_last_attempt_ends_its_tasks",
    "tasks::task_output_follow_sleeps_while_the_task_prints_nothing",
    "tick::a_step_during_a_running_turn_is_a_noop",
    "tick::a_step_with_commit_makes_one_git_commit_and_leaves_a_clean_tree",
    "tick::git_tracks_the_records_and_no_locks_caches_or_journals",
    "tick::an_idle_tick_exits_with_0_or_under_exit_code_with_10",
    "tick::one_damaged_agent_does_not_keep_the_others_from_their_step",
    "timeouts::a_state_fails_one_millisecond_after_its_timeout",
    "timeouts::the_shutdown_timeout_can_not_be_disabled",
    "triggers::a_delivered_hint_has_the_resource_of_its_trigger_and_runs_a_turn",
    "triggers::a_secret_is_shown_once_and_only_its_hash_is_kept",
    "triggers::a_stopped_agent_keeps_messages_and_ignores_hints",
    "triggers::wrong_secrets_and_revoked_or_unknown_triggers_get_the_same_error",
    "triggers::the_delivery_count_is_that_of_claimed_messages",
    "triggers::the_signature_key_is_private_and_never_in_git",
    "triggers::the_trigger_that_comes_with_an_agent_takes_deliveries_that_end_a_plain_wait",
    "turns::a_turn_inherits_only_variables_that_its_policy_names",
    "turns::a_turn_inherits_the_environment_and_gets_dormouse_variables",
    "turns::a_turn_works_in_the_directory_that_holds_the_state_directory",
    "turns::an_agents_policy_is_checked_before_its_turn",
    "turns::an_invalid_setting_is_refused_when_the_policy_is_read",
];

/// Returns the names of all tests that match a filter, in order.
fn list(filters: &[&str]) -> Vec<String> {
    let listed = Command::new(std::env::current_exe().unwrap()).args(filters).arg("--list").output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

/// The sample is about one test in six, drawn by name, so that a new test changes no other draw.
/// `DORMOUSE_IN_DATABASE_SEED` (default 0) is the number of the sample.
const STEP: usize = 6;

/// Returns a number of a test that depends only on its name.
fn number_of(name: &str) -> usize {
    name.bytes().fold(0, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(byte)))
}

/// Runs a sixth of the tests. `DORMOUSE_IN_DATABASE=all` runs all of them.
#[test]
fn commands_do_the_same_in_a_database() {
    if is_elsewhere() {
        return;
    }
    let mut all = list(&words(FAMILIES));
    all.retain(|name| !ABOUT_FILES.contains(&name.as_str()));
    assert!(all.len() > 450, "{all:?}");
    let step = match std::env::var("DORMOUSE_IN_DATABASE").as_deref() {
        Ok("all") => 1,
        Ok(other) => panic!("DORMOUSE_IN_DATABASE is `all` or unset, and not `{other}`"),
        Err(_) => STEP,
    };
    let first = number("DORMOUSE_IN_DATABASE_SEED", 0) as usize % step;
    let sample: Vec<&String> = all.iter().filter(|name| number_of(name) % step == first).collect();
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
