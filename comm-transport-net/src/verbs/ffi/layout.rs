//! The structures against the header of the installed library.

use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use super::abi::{
    AhAttr, AsyncEvent, Completion, GlobalRoute, PortAttributes, QpAttr, QpInitAttr, RawChannel,
    RawContext, RawMr, RawOps, RawQp, RecvWr, SendWr, Sge,
};

/// One line for each size or place: what it is in C, and what it is here.
fn expected() -> Vec<(&'static str, usize)> {
    let context = offset_of!(RawContext, ops);
    vec![
        ("offsetof(struct ibv_context, ops)", context),
        (
            "offsetof(struct ibv_context, cmd_fd)",
            offset_of!(RawContext, cmd_fd),
        ),
        (
            "offsetof(struct ibv_context, async_fd)",
            offset_of!(RawContext, async_fd),
        ),
        ("sizeof(struct ibv_context_ops)", size_of::<RawOps>()),
        (
            "offsetof(struct ibv_context_ops, poll_cq)",
            offset_of!(RawOps, poll_cq),
        ),
        (
            "offsetof(struct ibv_context_ops, req_notify_cq)",
            offset_of!(RawOps, req_notify_cq),
        ),
        (
            "offsetof(struct ibv_context_ops, post_send)",
            offset_of!(RawOps, post_send),
        ),
        (
            "offsetof(struct ibv_context_ops, post_recv)",
            offset_of!(RawOps, post_recv),
        ),
        ("sizeof(struct ibv_comp_channel)", size_of::<RawChannel>()),
        (
            "offsetof(struct ibv_comp_channel, fd)",
            offset_of!(RawChannel, fd),
        ),
        ("offsetof(struct ibv_qp, qp_num)", offset_of!(RawQp, qp_num)),
        ("offsetof(struct ibv_mr, lkey)", offset_of!(RawMr, lkey)),
        ("offsetof(struct ibv_mr, rkey)", offset_of!(RawMr, rkey)),
        ("sizeof(struct ibv_sge)", size_of::<Sge>()),
        ("sizeof(struct ibv_send_wr)", size_of::<SendWr>()),
        (
            "offsetof(struct ibv_send_wr, opcode)",
            offset_of!(SendWr, opcode),
        ),
        (
            "offsetof(struct ibv_send_wr, send_flags)",
            offset_of!(SendWr, send_flags),
        ),
        (
            "offsetof(struct ibv_send_wr, wr.rdma.remote_addr)",
            offset_of!(SendWr, remote_addr),
        ),
        (
            "offsetof(struct ibv_send_wr, wr.rdma.rkey)",
            offset_of!(SendWr, rkey),
        ),
        ("sizeof(struct ibv_recv_wr)", size_of::<RecvWr>()),
        (
            "offsetof(struct ibv_recv_wr, sg_list)",
            offset_of!(RecvWr, sg_list),
        ),
        ("sizeof(struct ibv_wc)", size_of::<Completion>()),
        (
            "offsetof(struct ibv_wc, status)",
            offset_of!(Completion, status),
        ),
        (
            "offsetof(struct ibv_wc, vendor_err)",
            offset_of!(Completion, vendor_err),
        ),
        (
            "offsetof(struct ibv_wc, byte_len)",
            offset_of!(Completion, byte_len),
        ),
        ("sizeof(struct ibv_qp_init_attr)", size_of::<QpInitAttr>()),
        (
            "offsetof(struct ibv_qp_init_attr, cap)",
            offset_of!(QpInitAttr, cap),
        ),
        (
            "offsetof(struct ibv_qp_init_attr, qp_type)",
            offset_of!(QpInitAttr, qp_type),
        ),
        ("sizeof(struct ibv_qp_attr)", size_of::<QpAttr>()),
        (
            "offsetof(struct ibv_qp_attr, path_mtu)",
            offset_of!(QpAttr, path_mtu),
        ),
        (
            "offsetof(struct ibv_qp_attr, rq_psn)",
            offset_of!(QpAttr, rq_psn),
        ),
        (
            "offsetof(struct ibv_qp_attr, dest_qp_num)",
            offset_of!(QpAttr, dest_qp_num),
        ),
        (
            "offsetof(struct ibv_qp_attr, qp_access_flags)",
            offset_of!(QpAttr, qp_access_flags),
        ),
        (
            "offsetof(struct ibv_qp_attr, ah_attr)",
            offset_of!(QpAttr, ah_attr),
        ),
        (
            "offsetof(struct ibv_qp_attr, pkey_index)",
            offset_of!(QpAttr, pkey_index),
        ),
        (
            "offsetof(struct ibv_qp_attr, max_rd_atomic)",
            offset_of!(QpAttr, max_rd_atomic),
        ),
        (
            "offsetof(struct ibv_qp_attr, min_rnr_timer)",
            offset_of!(QpAttr, min_rnr_timer),
        ),
        (
            "offsetof(struct ibv_qp_attr, port_num)",
            offset_of!(QpAttr, port_num),
        ),
        (
            "offsetof(struct ibv_qp_attr, rnr_retry)",
            offset_of!(QpAttr, rnr_retry),
        ),
        ("sizeof(struct ibv_ah_attr)", size_of::<AhAttr>()),
        (
            "offsetof(struct ibv_ah_attr, dlid)",
            offset_of!(AhAttr, dlid),
        ),
        (
            "offsetof(struct ibv_ah_attr, is_global)",
            offset_of!(AhAttr, is_global),
        ),
        (
            "offsetof(struct ibv_ah_attr, port_num)",
            offset_of!(AhAttr, port_num),
        ),
        ("sizeof(struct ibv_global_route)", size_of::<GlobalRoute>()),
        (
            "offsetof(struct ibv_global_route, sgid_index)",
            offset_of!(GlobalRoute, sgid_index),
        ),
        (
            "offsetof(struct ibv_port_attr, active_mtu)",
            offset_of!(PortAttributes, active_mtu),
        ),
        (
            "offsetof(struct ibv_port_attr, gid_tbl_len)",
            offset_of!(PortAttributes, gid_tbl_len),
        ),
        (
            "offsetof(struct ibv_port_attr, max_msg_sz)",
            offset_of!(PortAttributes, max_msg_sz),
        ),
        (
            "offsetof(struct ibv_port_attr, lid)",
            offset_of!(PortAttributes, lid),
        ),
        (
            "offsetof(struct ibv_port_attr, active_width)",
            offset_of!(PortAttributes, active_width),
        ),
        (
            "offsetof(struct ibv_port_attr, link_layer)",
            offset_of!(PortAttributes, link_layer),
        ),
        ("sizeof(struct ibv_async_event)", size_of::<AsyncEvent>()),
        (
            "offsetof(struct ibv_async_event, event_type)",
            offset_of!(AsyncEvent, event_type),
        ),
    ]
}

#[test]
fn structures_are_laid_out_as_in_the_librarys_header() {
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        println!("skipped: there is no header of libibverbs (Debian: libibverbs-dev)");
        return;
    }
    let directory = std::env::temp_dir().join(format!("comm-verbs-layout-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let source = directory.join("layout.c");
    let expected = expected();
    let lines: String = expected
        .iter()
        .map(|(what, _)| format!("  printf(\"%zu\\n\", {what});\n"))
        .collect();
    let text = format!(
        "#include <stdio.h>\n#include <stddef.h>\n#include <infiniband/verbs.h>\n\
         int main(void) {{\n{lines}  return 0;\n}}\n"
    );
    std::fs::write(&source, text).unwrap();
    let program = directory.join("layout");
    let compiled = Command::new("cc")
        .arg("-o")
        .args([&program, &source])
        .status();
    let Ok(status) = compiled else {
        println!("skipped: there is no C compiler");
        return;
    };
    assert!(status.success());
    let output = Command::new(&program).output().unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    for ((what, here), there) in expected.iter().zip(printed.lines()) {
        assert_eq!(there.parse(), Ok(*here), "{what}");
    }
    assert_eq!(printed.lines().count(), expected.len());
}
