//! Answers as a table.

use std::net::IpAddr;

use super::cast::Cast;
use super::question::{Answer, Question};
use crate::sandbox::{Outcome, Place};

const HEAD: [&str; 6] = [
    "SERVICE",
    "ADDRESS",
    "",
    "ASKED BY",
    "ANSWERED BY",
    "SOURCE SEEN",
];

/// A line per question.
pub(super) fn of_answers(questions: &[Question], answers: &[Answer], cast: &Cast) -> String {
    let mut rows = vec![HEAD.map(str::to_owned)];
    let mut last: Option<&Question> = None;
    for (question, answer) in questions.iter().zip(answers) {
        let same_service = last.is_some_and(|last| last.service == question.service);
        let same_address = same_service
            && last
                .is_some_and(|last| (last.at, last.protocol) == (question.at, question.protocol));
        let unless = |repeated: bool, text: String| if repeated { String::new() } else { text };
        rows.push([
            unless(same_service, question.service.to_string()),
            unless(
                same_address,
                format!("{}/{}", question.at, question.protocol),
            ),
            unless(same_address, question.kind.to_owned()),
            question.who.to_owned(),
            answered_by(answer, cast),
            source_seen(question, answer, cast),
        ]);
        last = Some(question);
    }
    format!("{}\n* on this node", align(&rows))
}

/// Endpoints with their counts, and connections that nobody answered.
fn answered_by(answer: &Answer, cast: &Cast) -> String {
    let endpoints = answer.endpoints.iter().map(|(endpoint, count)| {
        let star = if cast.is_local(endpoint.ip()) {
            "*"
        } else {
            ""
        };
        format!("{}{star} x{count}", endpoint.ip())
    });
    let others = answer.others.iter().map(|(outcome, count)| match outcome {
        Outcome::TimedOut => format!("dropped x{count}"),
        Outcome::Reached { .. } | Outcome::Refused | Outcome::Closed | Outcome::Unreachable(_) => {
            format!("{outcome} x{count}")
        }
    });
    endpoints.chain(others).collect::<Vec<_>>().join(", ")
}

fn source_seen(question: &Question, answer: &Answer, cast: &Cast) -> String {
    let name = |ip: &IpAddr| {
        let own = match question.from {
            Place::Pod(own) => own == *ip,
            // Whoever is no pod and no node has only the address it was built with.
            Place::Outside | Place::OtherNode => !cast.node_addresses().contains(ip),
            Place::Node => false,
        };
        match (own, cast.node_addresses().contains(ip)) {
            (true, _) => "kept".to_owned(),
            (false, true) => "the node".to_owned(),
            (false, false) => ip.to_string(),
        }
    };
    answer
        .sources
        .iter()
        .map(name)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Columns padded to their widest cell, two blanks apart.
fn align<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let lines = rows.iter().map(|row| {
        let cells = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::align;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["a", "bb", "c"], ["dddd", "", ""]].map(|row| row.map(str::to_owned));
        assert_eq!(align(&rows), "a     bb  c\ndddd");
    }
}
