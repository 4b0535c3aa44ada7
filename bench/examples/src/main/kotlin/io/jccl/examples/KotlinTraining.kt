package io.jccl.examples

import io.jccl.Communicator
import io.jccl.device.Buffer
import io.jccl.device.DataType
import io.jccl.parallel.GradientReducer
import io.jccl.parallel.ReducerOptions
import kotlin.math.abs

/*
 * The network of plain Java, trained from Kotlin by two ranks that are threads of this process. Each
 * rank has a network and examples of its own; a reducer averages the gradients while they are copied.
 */

private const val STEPS = 40
private const val RATE = 0.1f

private fun train(comm: Communicator, all: Regression): List<Double> =
    PlainTraining(Training.FEATURES, 1).use { network ->
        val examples = all.share(comm.rank(), comm.size())
        val weights = network.weights()
        val parameters =
            weights.mapIndexed { i, w ->
                GradientReducer.Parameter("w$i", w.count(), DataType.FLOAT32)
            }
        GradientReducer.create(comm, parameters, ReducerOptions.DEFAULT).use { reducer ->
            List(STEPS) {
                val loss = Training.mean(comm, network.backward(examples))
                reducer.begin(true)
                for (i in weights.indices.reversed()) {
                    network.gradient(i).use { reducer.gradient(i).copyFrom(it.asSegment()) }
                    reducer.ready(i)
                }
                reducer.finish()
                weights.forEachIndexed { i, w -> step(w, reducer.gradient(i)) }
                loss
            }
        }
    }

/** Gradient descent, element by element. */
private fun step(weight: Buffer, gradient: Buffer) {
    for (i in 0 until weight.count()) {
        weight[i] = weight[i] - RATE * gradient[i]
    }
}

/** Trains on one rank and on two, and fails unless the losses are equal. */
fun main() {
    val all = Regression.of(512, Training.FEATURES, 1)
    fun losses(ranks: Int): List<Double> {
        val results = arrayOfNulls<List<Double>>(ranks)
        Communicator.runLocal(ranks) { comm -> results[comm.rank()] = train(comm, all) }
        return checkNotNull(results[0])
    }
    val alone = losses(1)
    val together = losses(2)
    check(alone.zip(together).all { (a, b) -> abs(a - b) < 1e-5 }) { "$alone, $together" }
    check(together.last() < together.first() / 2) { "$together" }
    println("Kotlin, 2 ranks: loss from %.4f to %.4f, as on one rank".format(together.first(), together.last()))
}
