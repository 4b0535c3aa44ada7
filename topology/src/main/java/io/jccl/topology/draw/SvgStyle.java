package io.jccl.topology.draw;

import java.util.List;

/** The style sheet of a picture, for light and dark backgrounds. */
final class SvgStyle {
    /** Colours of channels, used in turn; distinguishable on light and on dark backgrounds. */
    static final List<String> COLOURS =
            List.of(
                    "#d1495b", "#2f7fd0", "#e08e0b", "#2a9d6f", "#8f5bd0", "#c94f9d", "#0f9bb0",
                    "#8a7a12", "#c4622d", "#5468d4", "#6b9b1e", "#a0616a");

    private SvgStyle() {}

    /** Adds a {@code <style>} element. */
    static void add(StringBuilder out) {
        out.append("<style>\n");
        out.append(
                """
                .jccl-topo text{font-family:system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;fill:#24292f}
                .jccl-topo .bg{fill:#ffffff}
                .jccl-topo .title{font-size:17px;font-weight:600}
                .jccl-topo .small{font-size:12px;fill:#57606a}
                .jccl-topo .name{font-weight:600;text-anchor:middle}
                .jccl-topo .sub{font-size:10px;text-anchor:middle;fill:#57606a}
                .jccl-topo .rate{font-size:10px;fill:#3b4654;stroke:#ffffff;stroke-width:3px;paint-order:stroke;stroke-linejoin:round}
                .jccl-topo .switch{font-size:11px}
                .jccl-topo .box{stroke-width:1.2}
                .jccl-topo .gpu{fill:#e6f4d7;stroke:#5e9414}
                .jccl-topo .nic{fill:#dff1f4;stroke:#2b8796}
                .jccl-topo .nvswitch{fill:#eef7e2;stroke:#76b900}
                .jccl-topo .pcie_switch{fill:#e8eefb;stroke:#5478c4}
                .jccl-topo .host_bridge{fill:#f1ecfa;stroke:#8a6cc0}
                .jccl-topo .numa{fill:#f4f1ea;stroke:#9a8a63}
                .jccl-topo .network{fill:#dff1f4;stroke:#2b8796}
                .jccl-topo .l-nvlink{stroke:#9fcf4a}
                .jccl-topo .l-c2c{stroke:#3aa88f}
                .jccl-topo .l-pcie{stroke:#9db5e6}
                .jccl-topo .l-host_bridge{stroke:#bfaae2}
                .jccl-topo .l-smp{stroke:#d9a35b}
                .jccl-topo .l-network{stroke:#6fbccb}
                .jccl-topo .link,.jccl-topo .hop{fill:none;stroke-linecap:round;stroke-linejoin:round}
                .jccl-topo .hop{stroke-width:1.6}
                .jccl-topo .whole{stroke-width:3;stroke-opacity:.55}
                @media (prefers-color-scheme:dark){
                .jccl-topo text{fill:#e6edf3}
                .jccl-topo .bg{fill:#16181d}
                .jccl-topo .small,.jccl-topo .sub{fill:#9da7b3}
                .jccl-topo .rate{fill:#c3ccd8;stroke:#16181d}
                .jccl-topo .gpu{fill:#22330f;stroke:#86c232}
                .jccl-topo .nic,.jccl-topo .network{fill:#10303a;stroke:#4fb3c4}
                .jccl-topo .nvswitch{fill:#1b2a0c;stroke:#76b900}
                .jccl-topo .pcie_switch{fill:#18233d;stroke:#6f93e0}
                .jccl-topo .host_bridge{fill:#261d38;stroke:#a98be0}
                .jccl-topo .numa{fill:#2a261b;stroke:#b8a679}
                .jccl-topo .l-nvlink{stroke:#5f8f16}
                .jccl-topo .l-c2c{stroke:#1f7f6a}
                .jccl-topo .l-pcie{stroke:#3f5ea5}
                .jccl-topo .l-host_bridge{stroke:#6a4fa0}
                .jccl-topo .l-smp{stroke:#94662a}
                .jccl-topo .l-network{stroke:#2b7785}
                }
                """);
        // Colours of channels come last, so that they win.
        for (int i = 0; i < COLOURS.size(); i++) {
            out.append(".jccl-topo .c").append(i).append("{stroke:").append(COLOURS.get(i));
            out.append("}\n.jccl-topo .f").append(i).append("{fill:").append(COLOURS.get(i));
            out.append("}\n");
        }
        out.append("</style>\n");
    }
}
