package io.jccl;

import io.jccl.device.Device;
import io.jccl.internal.Provided;
import io.jccl.rendezvous.Store;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;

/**
 * Where the factory methods of {@link Communicator}, {@link NcclCommunicator}, {@link LocalJob} and
 * {@link Group} find the engines, which are not exported and which this package does not know. It
 * is asked when something is created and when a group begins; operations go straight to the
 * engine's classes. Programs call those factory methods, never this.
 *
 * <p><b>Threads:</b> any.
 */
public interface EngineProvider {
    /** The one implementation. */
    final class Holder {
        static final EngineProvider ENGINES = Provided.by(EngineProvider.class);

        private Holder() {}
    }

    /**
     * Ranks as threads on the host engine.
     *
     * @param size number of ranks
     * @param options settings of all ranks
     * @return one communicator per rank
     * @see Communicator#local(int, CommunicatorOptions)
     */
    List<Communicator> host(int size, CommunicatorOptions options);

    /**
     * A process of a job of this machine on the host engine.
     *
     * @param environment a launcher's variables
     * @param options settings
     * @return this rank
     * @see Communicator#fromEnvironment(CommunicatorOptions)
     */
    Communicator host(Map<String, String> environment, CommunicatorOptions options);

    /**
     * Ranks of this process on GPUs, over NCCL.
     *
     * @param devices by rank
     * @param options settings of all ranks
     * @return one communicator per rank
     * @see Communicator#local(List, CommunicatorOptions)
     */
    List<Communicator> nccl(List<? extends Device> devices, CommunicatorOptions options);

    /**
     * A rank that meets the others in a store, over NCCL.
     *
     * @param store the same for all ranks
     * @param name of the communicator
     * @param rank this rank
     * @param size number of ranks
     * @param device this rank's GPU
     * @param options settings
     * @return this rank
     * @see Communicator#join(Store, String, int, int, Device, CommunicatorOptions)
     */
    Communicator nccl(
            Store store,
            String name,
            int rank,
            int size,
            Device device,
            CommunicatorOptions options);

    /**
     * A rank that a launcher started, over NCCL.
     *
     * @param environment the launcher's variables
     * @param device this rank's GPU
     * @param options settings
     * @return this rank
     * @see Communicator#fromEnvironment(Device, CommunicatorOptions)
     */
    Communicator nccl(Map<String, String> environment, Device device, CommunicatorOptions options);

    /**
     * A rank that joins a communicator which grows.
     *
     * @param store of the communicator that grows
     * @param name that grow was given
     * @param rank in the new communicator
     * @param size of the new communicator
     * @param device this rank's GPU
     * @param options settings
     * @return this rank
     * @see NcclCommunicator#joinGrown
     */
    NcclCommunicator ncclGrown(
            Store store,
            String name,
            int rank,
            int size,
            Device device,
            CommunicatorOptions options);

    /**
     * Whether a launcher's variables choose MPI as the engine.
     *
     * @param environment the variables
     * @return true if {@link #mpi} is what joins its job
     */
    boolean isMpiChosen(Map<String, String> environment);

    /**
     * This process of an MPI job.
     *
     * @param options settings
     * @return this rank
     * @see Communicator#mpi
     */
    Communicator mpi(CommunicatorOptions options);

    /**
     * Records operations of communicators and submits them together.
     *
     * @param communicators one or more
     * @param body calls the operations
     * @see Group#run(List, Runnable)
     */
    void group(List<? extends Communicator> communicators, Runnable body);

    /**
     * Records operations of one communicator and submits them together; allocates nothing.
     *
     * @param communicator whose operations are recorded
     * @param body calls the operations
     * @see Group#run(Communicator, Runnable)
     */
    void group(Communicator communicator, Runnable body);

    /**
     * Where processes of a job share memory.
     *
     * @return an existing folder
     * @see LocalJob#sharedFolder
     */
    Path sharedFolder();

    /**
     * Removes what a job left in shared memory.
     *
     * @param jobId its name
     * @see LocalJob#cleanUp
     */
    void cleanUp(String jobId);
}
