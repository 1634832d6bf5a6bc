//! Ranks as processes: this test program starts itself as workers, and kills some of them.

mod joining;
#[path = "../process_support/mod.rs"]
mod process_support;
mod running;
mod worker;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    if let Some(code) = process_support::play_if_worker(worker::play) {
        return code;
    }
    let mut trials = vec![
        Trial::test("a_missing_rank_is_listed_at_the_deadline", joining::missing),
        Trial::test(
            "disagreeing_world_sizes_are_an_error_on_every_rank",
            joining::world_sizes,
        ),
        Trial::test("a_wrong_secret_is_refused_and_named", joining::wrong_secret),
        Trial::test(
            "only_those_who_did_not_come_are_missed",
            joining::waiting_for_rank_0,
        ),
        Trial::test(
            "different_settings_are_named_by_every_rank",
            joining::settings,
        ),
        Trial::test("jobs_of_different_ids_do_not_meet", joining::job_ids),
        Trial::test(
            "both_sides_are_told_that_their_job_ids_differ",
            joining::own_job_ids,
        ),
        Trial::test(
            "data_listens_on_the_port_behind_that_of_control",
            joining::ports,
        ),
        Trial::test("a_rank_outside_the_world_is_an_error", joining::outside),
    ];
    // Ranks that are threads of one process are no processes. RDMA has tests of its own, on machines
    // with a card.
    let between_processes: Vec<_> = comm_api::compiled_transports()
        .iter()
        .filter(|name| !["p2p", "verbs"].contains(name))
        .collect();
    if !between_processes.is_empty() {
        trials.extend([
            Trial::test("mismatched_counts_name_both_processes", running::mismatch),
            Trial::test(
                "a_circle_of_single_threaded_ranks_ends_with_its_description",
                running::circle,
            ),
            Trial::test("a_directory_is_a_rendezvous", joining::directory),
            Trial::test(
                "ranks_of_a_job_make_communicators_of_some_of_them",
                joining::parts,
            ),
        ]);
    }
    if between_processes.len() > 1 {
        trials.extend([
            Trial::test("ranks_that_differ_agree_on_what_both_have", joining::differ),
            Trial::test(
                "ranks_with_nothing_in_common_name_what_each_has",
                joining::disjoint,
            ),
        ]);
    }
    for &transport in between_processes {
        trials.push(Trial::test(
            format!("processes_reduce_over_{transport}"),
            move || running::reduce(transport),
        ));
        trials.push(Trial::test(
            format!("what_was_sent_arrives_although_the_sender_ends_over_{transport}"),
            move || running::last_sends(transport),
        ));
        if transport == "net" {
            trials.push(Trial::test(
                "ranks_of_one_host_are_neighbours_in_rings",
                running::near_ranks,
            ));
        }
        trials.push(Trial::test(
            format!("a_killed_process_is_named_by_all_others_over_{transport}"),
            move || running::kill("endless", transport),
        ));
        trials.push(Trial::test(
            format!("the_others_go_on_without_a_killed_process_over_{transport}"),
            move || running::go_on(transport),
        ));
        trials.push(Trial::test(
            format!("a_killed_process_ends_the_frames_of_all_others_over_{transport}"),
            move || running::kill("endless_frames", transport),
        ));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
