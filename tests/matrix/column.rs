//! The table's column of RDMA, out of what the programs in the VM have said.

use std::sync::PoisonError;

use crate::table::{Family, MARK, Row, TURN, in_readme, put};

/// What a family has said in the VM: its rows there stand beside the README's, in the same order.
#[track_caller]
pub fn publish(family: &Family, output: &str) {
    let seen: Vec<Row> = output.lines().filter_map(|line| line.strip_prefix(MARK)).filter_map(Row::parse).collect();
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (before, known, after) = in_readme();
    let mut rows: Vec<Row> = known.iter().filter(|row| family.programs.contains(&row.program.as_str())).cloned().collect();
    assert_eq!(rows.len(), seen.len(), "rows of {} in the README, and over RDMA:\n{rows:#?}{seen:#?}", family.name);
    for (row, seen) in rows.iter_mut().zip(&seen) {
        assert_eq!((&row.program, &row.said), (&seen.program, &seen.said), "{row:#?}{seen:#?}");
        let cell = if seen.verbs == row.shm && seen.verbs.starts_with("TCP") { "TCP: the same" } else { &seen.verbs };
        row.verbs = [cell, &less(&row.what, &seen.what)].concat();
    }
    put(family, &rows, (&before, &known, &after));
}

/// In what a smaller run differs from the usual one: the words that are others, with the option or what is counted.
#[track_caller]
fn less(usual: &str, small: &str) -> String {
    let words = |text: &str| text.split_whitespace().map(|word| word.trim_matches(['`', ',', ';', ':']).to_owned()).collect::<Vec<_>>();
    let (usual, small) = (words(usual), words(small));
    assert_eq!(usual.len(), small.len(), "other words than numbers are others: {usual:?} {small:?}");
    let changed = (0..small.len()).filter(|at| small[*at] != usual[*at]);
    let told: Vec<String> = changed
        .map(|at| match (at.checked_sub(1).map(|before| &small[before]), small.get(at + 1)) {
            _ if small[at].starts_with('-') => format!("`{}`", small[at]),
            (Some(option), _) if option.starts_with('-') => format!("`{option} {}`", small[at]),
            (_, Some(counted)) => format!("{} {counted}", small[at]),
            _ => small[at].clone(),
        })
        .collect();
    if told.is_empty() { String::new() } else { format!(", {}", told.join(", ")) }
}
