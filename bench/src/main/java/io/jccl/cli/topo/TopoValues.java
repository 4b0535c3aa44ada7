package io.jccl.cli.topo;

import io.jccl.topology.cost.Algorithm;
import io.jccl.topology.cost.Protocol;
import io.jccl.topology.read.Format;
import java.util.Locale;
import picocli.CommandLine.ITypeConverter;
import picocli.CommandLine.TypeConversionException;

/** Values of options of {@code jccl topo}. */
final class TopoValues {
    private TopoValues() {}

    static final class Formats implements ITypeConverter<Format> {
        @Override
        public Format convert(String value) {
            return switch (value) {
                case "auto" -> Format.AUTO;
                case "smi" -> Format.SMI;
                case "nccl-xml" -> Format.NCCL_XML;
                default ->
                        throw new TypeConversionException(
                                "'" + value + "' is not a format: give auto, smi or nccl-xml");
            };
        }
    }

    /** An algorithm, as NCCL or JCCL spells it. */
    static final class Algorithms implements ITypeConverter<Algorithm> {
        @Override
        public Algorithm convert(String value) {
            String plain = value.replace("_", "").toUpperCase(Locale.ROOT);
            for (Algorithm a : Algorithm.values()) {
                if (a.name().replace("_", "").equals(plain)) {
                    return a;
                }
            }
            throw new TypeConversionException(
                    "'"
                            + value
                            + "' is not an algorithm that is predicted: give ring, tree, nvls,"
                            + " nvls_tree, pat or direct"
                            + (plain.startsWith("COLLNET")
                                    ? "; CollNet depends on the network's switches"
                                    : ""));
        }
    }

    static final class Protocols implements ITypeConverter<Protocol> {
        @Override
        public Protocol convert(String value) {
            for (Protocol p : Protocol.values()) {
                if (p.name().equalsIgnoreCase(value)) {
                    return p;
                }
            }
            throw new TypeConversionException(
                    "'" + value + "' is not a protocol: give ll, ll128 or simple");
        }
    }
}
